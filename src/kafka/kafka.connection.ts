/**
 * One client and its one producer, from the first connect to the end. Every call of the client that can hang has a
 * deadline of our own. Never retries and never creates a topic; never disconnects under a send.
 */
import { Kafka, Partitioners, logLevel, type Producer, type RecordMetadata } from 'kafkajs';
import { withDeadline } from './deadline.js';
import { KafkaSendFailure, type KafkaPhase } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';
import type { KafkaConfig } from './kafka.options.js';
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
  private sends = 0;
  private closed = false;
  private whenIdle: (() => void) | undefined;

  constructor(private readonly config: KafkaConfig) {
    const kafka = new Kafka({
      clientId: config.client_id,
      brokers: [...config.brokers],
      connectionTimeout: config.connect_timeout_ms,
      authenticationTimeout: config.connect_timeout_ms,
      requestTimeout: config.request_timeout_ms,
      enforceRequestTimeout: true,
      logLevel: logLevel.NOTHING, // every failure reaches the job's own record
      retry: NO_RETRIES,
      socketFactory: this.watch.socketFactory,
    });
    this.producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner,
      allowAutoTopicCreation: false,
      idempotent: false,
      metadataMaxAge: METADATA_MAX_AGE_MS,
      retry: NO_RETRIES,
    });
    this.producer.on(this.producer.events.REQUEST, ({ payload }) => {
      if (payload.apiName === 'Produce') this.watch.answered(payload.broker, payload.correlationId);
    });
  }

  /** One call of the client for all records. Throws `KafkaSendFailure`, which speaks for every one of them. */
  async send(records: readonly KafkaRecord[]): Promise<RecordMetadata[]> {
    this.sends++;
    let phase = (): KafkaPhase => 'connect';
    const watched = this.watch.begin(records[0]!);
    try {
      await this.connect();
      phase = () => watched.phase;
      const { request_timeout_ms } = this.config;
      const sent = this.producer.sendBatch({
        acks: ALL_REPLICAS,
        timeout: Math.ceil(request_timeout_ms * 0.8), // the broker gives up, and says so, before the client does
        topicMessages: byTopic(records),
      });
      const answer = await withDeadline('Kafka send', request_timeout_ms + DEADLINE_GRACE_MS, sent);
      assertCovers(answer, records);
      return answer;
    } catch (error) {
      throw new KafkaSendFailure(phase(), error);
    } finally {
      this.watch.end(watched);
      this.sends--;
      if (this.sends === 0) this.whenIdle?.();
    }
  }

  /** Ends the connection after the sends under way have ended. Never throws. */
  async close(): Promise<void> {
    this.closed = true;
    if (this.sends > 0) await new Promise<void>((resolve) => (this.whenIdle = resolve));
    // It can hang on a request that nobody answers, and closes no socket then.
    await withDeadline('Kafka disconnect', this.config.connect_timeout_ms, this.producer.disconnect()).catch(
      () => undefined,
    );
    this.watch.destroySockets();
  }

  /** No more waiting: sends under way end as unknown. */
  destroy(): void {
    this.watch.destroySockets();
  }

  private connect(): Promise<void> {
    this.connected ??= withDeadline('Kafka connect', this.config.connect_timeout_ms, this.connectToAny());
    return this.connected;
  }

  /** The client turns to its next broker only when it is asked to connect again. Nothing is sent yet: no double. */
  private async connectToAny(): Promise<void> {
    for (let left = this.config.brokers.length; ; left--) {
      try {
        return await this.producer.connect();
      } catch (error) {
        if (left <= 1 || this.closed) throw error;
      }
    }
  }
}

function byTopic(records: readonly KafkaRecord[]) {
  const topics = new Map<string, KafkaRecord[]>();
  for (const record of records) {
    const known = topics.get(record.topic);
    if (known) known.push(record);
    else topics.set(record.topic, [record]);
  }
  return [...topics].map(([topic, list]) => ({
    topic,
    messages: list.map(({ key, value, headers }) => ({ key, value, headers: { ...headers } })),
  }));
}

/** A send that resolves has been seen to leave a partition out. */
function assertCovers(answer: readonly RecordMetadata[] | undefined, records: readonly KafkaRecord[]): void {
  const answered = new Set((answer ?? []).filter(({ errorCode }) => errorCode === 0).map(({ topicName }) => topicName));
  const missing = records.find(({ topic }) => !answered.has(topic));
  if (missing) throw new Error(`Kafka answered without a word on topic ${missing.topic}`);
}
