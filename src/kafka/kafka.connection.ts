/**
 * One client and its one producer, from the first connect to the end. Every call of the client that can hang has a
 * deadline of our own. Never retries and never creates a topic; never disconnects under a send.
 */
import { Kafka, logLevel, type Producer, type RecordMetadata } from 'kafkajs';
import { withDeadline } from './deadline.js';
import { KafkaSendFailure, type KafkaPhase } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';
import type { KafkaConfig } from './kafka.options.js';
import { assertCovers, groupBy, topicMessages, type KafkaParcel, type KafkaSent } from './parcels.js';
import { createPartitioner, placeIn, PartitionsQuestion, type Place } from './partitions.js';
import { ProduceWatch } from './produce_watch.js';

const ALL_REPLICAS = -1;
/** The client ends a request itself; only what it misses runs into our deadline. */
export const DEADLINE_GRACE_MS = 500;
const METADATA_MAX_AGE_MS = 300_000;

/**
 * With retries inside, a send over several partitions can resolve although one was never written, and an unclear end is
 * sent again. All values are given because the client's defaults change with NODE_ENV.
 */
const NO_RETRIES = { retries: 0, initialRetryTime: 100, maxRetryTime: 1_000, factor: 0.2, multiplier: 2 };

export class KafkaConnection {
  private readonly watch = new ProduceWatch();
  private readonly producer: Producer;
  private connected: Promise<void> | undefined;
  /** Who needs the connection open. */
  private users = 0;
  private closed = false;
  private whenIdle: (() => void) | undefined;

  /** `nth`: the broker of the list to begin with, so that one that takes connections and is silent is not asked for ever. */
  constructor(
    private readonly config: KafkaConfig,
    nth = 0,
  ) {
    const { brokers } = config;
    const kafka = new Kafka({
      clientId: config.client_id,
      brokers: brokers.map((_, index) => brokers[(nth + index) % brokers.length]!),
      connectionTimeout: config.connect_timeout_ms,
      authenticationTimeout: config.connect_timeout_ms,
      requestTimeout: config.request_timeout_ms,
      enforceRequestTimeout: true,
      logLevel: logLevel.NOTHING, // every failure reaches the job's own record
      retry: NO_RETRIES,
      socketFactory: this.watch.socketFactory,
    });
    this.producer = kafka.producer({
      createPartitioner,
      allowAutoTopicCreation: false,
      idempotent: false,
      metadataMaxAge: METADATA_MAX_AGE_MS,
      retry: NO_RETRIES,
    });
  }

  /** One call of the client for all records. Throws `KafkaSendFailure`, which speaks for every one of them. */
  send(parcel: KafkaParcel): Promise<RecordMetadata[]> {
    return this.inUse(() => this.sendWatched(parcel));
  }

  /** Keeps the connection open until `work` has ended, also when it is to be closed meanwhile. */
  async inUse<T>(work: () => Promise<T>): Promise<T> {
    this.users++;
    try {
      return await work();
    } finally {
      this.users--;
      if (this.users === 0) this.whenIdle?.();
    }
  }

  /**
   * Sorts records by topic-partition, each in the order given. What cannot be placed comes back with its failure. Takes as
   * long as a connect at most, and leaves the client connected: with a send after it the sum is that of a plain send.
   */
  async parcels(records: readonly KafkaRecord[]): Promise<KafkaSent[]> {
    const topics = [...groupBy(records, ({ topic }) => topic)];
    const ask = async (): Promise<(Place | KafkaSendFailure)[]> => {
      await this.connect();
      const places: (Place | KafkaSendFailure)[] = [];
      // One after the other: a topic that does not exist makes the client forget those it learns of at the same time.
      for (const [topic] of topics) places.push(await this.placesOf(topic));
      return places;
    };
    try {
      const places = await withDeadline('Kafka partitions', this.config.connect_timeout_ms, ask());
      return topics.flatMap(([, list], index): KafkaSent[] => {
        const place = places[index]!;
        if (place instanceof KafkaSendFailure) return [{ records: list, failure: place }];
        return [...groupBy(list, place)].map(([partition, group]) => ({ records: group, partition }));
      });
    } catch (error) {
      return [{ records, failure: new KafkaSendFailure('connect', error) }];
    }
  }

  private async placesOf(topic: string): Promise<Place | KafkaSendFailure> {
    const question = new PartitionsQuestion();
    const asked = this.producer.sendBatch({ topicMessages: [{ topic, messages: [question] }] });
    const failure = await asked.then(
      () => new Error('the client placed no record'),
      (error: unknown) => error,
    );
    return question.partitions ? placeIn(topic, question.partitions) : new KafkaSendFailure('send', failure);
  }

  private async sendWatched({ records, partition }: KafkaParcel): Promise<RecordMetadata[]> {
    let phase = (): KafkaPhase => 'connect';
    const watched = this.watch.begin(records[0]!);
    try {
      await this.connect();
      phase = () => watched.phase;
      const { request_timeout_ms } = this.config;
      const sent = this.producer.sendBatch({
        acks: ALL_REPLICAS,
        timeout: Math.ceil(request_timeout_ms * 0.8), // the broker gives up, and says so, before the client does
        topicMessages: topicMessages(records, partition),
      });
      const answer = await withDeadline('Kafka send', request_timeout_ms + DEADLINE_GRACE_MS, sent);
      assertCovers(answer, records);
      return answer;
    } catch (error) {
      const spread = partition === undefined && records.length > 1;
      throw new KafkaSendFailure(phase(), error, { spread, code: spread ? undefined : this.watch.codeOf(watched) });
    } finally {
      this.watch.end(watched);
    }
  }

  /** Ends the connection after the sends under way have ended. Never throws. */
  async close(): Promise<void> {
    this.closed = true;
    if (this.users > 0) await new Promise<void>((resolve) => (this.whenIdle = resolve));
    this.watch.close();
    // It can hang on a request that nobody answers, and closes no socket then.
    await withDeadline('Kafka disconnect', this.config.connect_timeout_ms, this.producer.disconnect()).catch(
      () => undefined,
    );
    this.watch.destroySockets();
  }

  /** No more waiting: sends under way end now, as unknown where something was written. */
  destroy(): void {
    this.watch.close();
    this.watch.destroySockets(new Error('the connection is closed'));
  }

  private connect(): Promise<void> {
    this.connected ??= withDeadline('Kafka connect', this.config.connect_timeout_ms, this.connectToAny());
    return this.connected;
  }

  /**
   * The client turns to its next broker only when it is asked to connect again, and waits for a silent one longer than we
   * do. So each gets half of the time that is left, the last one all of it. Nothing is sent yet: no double.
   */
  private async connectToAny(): Promise<void> {
    let left_ms = this.config.connect_timeout_ms;
    for (let left = this.config.brokers.length; ; left--) {
      left_ms /= 2;
      const giveUp = (): void => this.watch.destroySockets(new Error('no answer in time'));
      const timer = left > 1 ? setTimeout(giveUp, left_ms) : undefined;
      try {
        return await this.producer.connect();
      } catch (error) {
        if (left <= 1 || this.closed) throw error;
      } finally {
        clearTimeout(timer);
      }
    }
  }
}
