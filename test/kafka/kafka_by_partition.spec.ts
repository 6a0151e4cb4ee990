/** At most once with more than one row in flight: one call per topic-partition, an error for exactly the rows in it. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { Admin } from 'kafkajs';
import { randomUUID } from 'node:crypto';
import { JOBS_DEFAULTS } from '../../src/jobs/jobs.options.js';
import type { Job, JobContext } from '../../src/jobs/jobs.types.js';
import { JobTargetsRegistry } from '../../src/jobs/targets/job_targets.registry.js';
import {
  JobHeldBack,
  JobRejected,
  SharedFailure,
  TargetOutcomeUnknown,
  TargetUnreachable,
} from '../../src/jobs/targets/target_errors.js';
import type { KafkaModuleOptions } from '../../src/kafka/kafka.options.js';
import { PartitionBrokers, type Mood } from './partition_brokers.js';
import { sizeOfTopic } from './topic_offsets.js';

// The client has other defaults under NODE_ENV=test, read when it is loaded: faults are shown as in production.
process.env['NODE_ENV'] = 'production';
const { Kafka, Partitioners, logLevel } = await import('kafkajs');
const { resolveKafkaOptions } = await import('../../src/kafka/kafka.options.js');
const { KafkaProducer } = await import('../../src/kafka/kafka.producer.js');
const { KafkaTargets } = await import('../../src/kafka/kafka.target.js');

const context: JobContext = {
  signal: new AbortController().signal,
  attempt: 1,
  progress: () => undefined,
  complete: () => Promise.reject(new Error('not used')),
};
const CODE = 'order_changed';
const OTHER = 'order_logged';

type Ends = readonly (Error | undefined)[];

/** The real registry, targets and producer, as the lane would ask them. */
class Pod {
  readonly producer: InstanceType<typeof KafkaProducer>;
  private readonly registry = new JobTargetsRegistry(JOBS_DEFAULTS);

  constructor(
    private readonly topic: string,
    options: KafkaModuleOptions,
    max_in_flight: number | undefined = 20,
  ) {
    const rule = { default_topic: topic, ...(max_in_flight !== undefined && { max_in_flight }) };
    const topics = [CODE, OTHER].map((event) => ({ event, ...rule }));
    const timeouts = { connect_timeout_ms: 1_000, request_timeout_ms: 1_000 };
    const config = resolveKafkaOptions({ ...timeouts, topics, target_topics: '', ...options }, {});
    this.producer = new KafkaProducer(config);
    new KafkaTargets(config, this.producer, this.registry).onModuleInit();
  }

  get target() {
    return this.registry.require(`kafka:${this.topic}`);
  }

  job(key: string | undefined, change: Partial<Job> = {}): Job {
    const id = randomUUID().replaceAll('-', '').slice(0, 24);
    const { name: target } = this.target;
    const content = { id, target, code: CODE, version: 1, payload: id, dedupe_key: id, headers: {}, attempts: 0 };
    return { ...content, ...(key !== undefined && { key }), created_at: new Date(0), ...change };
  }

  /** How each row ended, in the rows' order. */
  async send(jobs: readonly Job[]): Promise<Ends> {
    try {
      const answer = await this.target.batch_handler!(jobs, context);
      return Array.from(jobs, (_, index) => answer?.[index]);
    } catch (error) {
      return jobs.map(() => error as Error);
    }
  }
}

/** A key that goes to this partition of so many. */
function keyOf(partition: number, of: number, nth = 0): string {
  const partitionMetadata = Array.from({ length: of }, (_, partitionId) => ({
    partitionId,
    leader: 0,
    partitionErrorCode: 0,
    replicas: [],
    isr: [],
  }));
  const place = Partitioners.DefaultPartitioner();
  for (let n = 0, left = nth; ; n++) {
    const found = place({ topic: 't', partitionMetadata, message: { key: `DO-${n}`, value: '' } }) === partition;
    if (found && left-- === 0) return `DO-${n}`;
  }
}

describe('at-most-once records by partition, where each partition has a mind of its own', () => {
  let kafka: PartitionBrokers;
  let pod: Pod;

  beforeEach(async () => {
    kafka = await PartitionBrokers.open(2);
    pod = new Pod('orders', { brokers: kafka.brokers });
  });

  afterEach(async () => {
    await pod.producer.onApplicationShutdown();
    await kafka.close();
  });

  /** Three rows for partition 0 and three for partition 1, in turn. */
  const mixed = (): Job[] => [0, 1, 0, 1, 0, 1].map((partition, nth) => pod.job(keyOf(partition, 2, nth % 3)));
  const ofPartition = <T>(partition: number, all: readonly T[]): T[] => all.filter((_, nth) => nth % 2 === partition);
  const well = [undefined, undefined, undefined];

  const table: [condition: string, mood: Mood, ends: Ends[number], accepted: number][] = [
    ['finds a message too large', 10, expect.any(SharedFailure) as unknown as Error, 0],
    ['finds a message corrupt', 2, expect.any(SharedFailure) as unknown as Error, 0],
    ['may not be written to', 29, expect.any(SharedFailure) as unknown as Error, 0],
    ['is not known to its broker', 3, expect.any(TargetUnreachable) as unknown as Error, 0],
    ['has another leader', 6, expect.any(TargetUnreachable) as unknown as Error, 0],
    ['has too few replicas', 19, expect.any(TargetUnreachable) as unknown as Error, 0],
    ['waited in vain for its replicas', 7, expect.objectContaining({ target_up: true }) as unknown as Error, 0],
    ['lost its peer', 13, expect.objectContaining({ target_up: true }) as unknown as Error, 0],
    ['lost replicas after the append', 20, expect.objectContaining({ target_up: false }) as unknown as Error, 0],
    ['never answers', 'mute', expect.objectContaining({ target_up: false }) as unknown as Error, 3],
    ['resets the connection', 'reset', expect.objectContaining({ target_up: false }) as unknown as Error, 3],
  ];

  it.each(table)('when one %s, that is said of its rows and of no other', async (_, mood, end, accepted) => {
    kafka.moods.set(1, mood);
    const jobs = mixed();
    const ends = await pod.send(jobs);
    expect(ofPartition(0, ends)).toEqual(well);
    expect(ofPartition(1, ends)).toEqual([end, end, end]);
    for (const error of ofPartition(1, ends)) {
      if (error && 'target_up' in error) expect(error).toBeInstanceOf(TargetOutcomeUnknown);
    }
    expect(kafka.accepted.get(0)).toEqual(ofPartition(0, jobs).map(({ payload }) => payload));
    expect(kafka.accepted.get(1) ?? []).toHaveLength(accepted);
    expect(new Set(kafka.requests.map(String))).toEqual(new Set(['0', '1']));
    expect(kafka.requests).toHaveLength(2);
  });

  describe('when the topic of another event is gone, or closed to this pod', () => {
    let both: Pod;

    beforeEach(async () => {
      both = new Pod('orders', { brokers: kafka.brokers, settings: () => ({ topic_names: { [OTHER]: 'log' } }) });
      for (const code of [CODE, OTHER]) expect(await both.send([both.job('DO-1', { code })])).toEqual([undefined]);
    });

    afterEach(() => both.producer.onApplicationShutdown());

    const unclear: [answer: string, mood: number, target_up: boolean][] = [
      ['replicas lost after the append', 20, false],
      ['a wait in vain for replicas', 7, true],
    ];
    const hidden = [3, 29].flatMap((topicError) => unclear.map((each) => [...each, topicError] as const));

    it.each(hidden)('%s (%d) stay an unknown end (target up: %s, topic error %d)', async (_, mood, target_up, gone) => {
      kafka.topicErrors.set('log', gone);
      kafka.moods.set(1, mood);
      const end = expect.objectContaining({ name: 'TargetOutcomeUnknown', target_up });
      expect(await both.send([both.job(keyOf(1, 2))])).toEqual([end]);
    });

    it.each([3, 29])('a moved leader stays "not sent" (topic error %d)', async (gone) => {
      kafka.topicErrors.set('log', gone);
      kafka.moods.set(1, 6);
      const ends = await both.send([both.job(keyOf(1, 2)), both.job(keyOf(1, 2))]);
      expect(ends).toEqual([expect.any(TargetUnreachable), expect.any(TargetUnreachable)]);
    });

    it('a record that is refused stays refused', async () => {
      kafka.topicErrors.set('log', 3);
      kafka.moods.set(1, 10);
      expect(await both.send([both.job(keyOf(1, 2))])).toEqual([
        expect.objectContaining({ type: 'MESSAGE_TOO_LARGE' }),
      ]);
    });
  });

  it("keeps two partitions' errors apart", async () => {
    kafka.moods.set(0, 10);
    kafka.moods.set(1, 'mute');
    const ends = await pod.send(mixed());
    expect(ofPartition(0, ends).every((error) => error instanceof SharedFailure)).toBe(true);
    expect(ofPartition(1, ends).every((error) => error instanceof TargetOutcomeUnknown)).toBe(true);
  });

  it('an answered error of the only row in its partition is about that row', async () => {
    kafka.moods.set(1, 10);
    const ends = await pod.send([pod.job(keyOf(0, 2)), pod.job(keyOf(0, 2)), pod.job(keyOf(1, 2))]);
    expect(ends).toEqual([undefined, undefined, expect.objectContaining({ type: 'MESSAGE_TOO_LARGE' })]);
    expect(ends[2]).not.toBeInstanceOf(SharedFailure);
  });

  it('records that are alike do not lend each other an answer', async () => {
    kafka.moods.set(1, 'mute');
    const alike = { payload: 'the same', headers: { event_id: 'the same' } };
    const ends = await pod.send([pod.job(keyOf(0, 2), alike), pod.job(keyOf(1, 2), alike)]);
    expect(ends).toEqual([undefined, expect.any(TargetOutcomeUnknown)]);
  });

  it('an error is no lesser one because a record like it was answered elsewhere', async () => {
    kafka.moods.set(0, 6);
    kafka.moods.set(1, 'mute');
    const alike = { payload: 'the same', headers: { event_id: 'the same' } };
    const ends = await pod.send([pod.job(keyOf(0, 2), alike), pod.job(keyOf(1, 2), alike)]);
    expect(ends[1]).toBeInstanceOf(TargetOutcomeUnknown);
  });

  it('a batch of one needs no partition', async () => {
    expect(await pod.send([pod.job('DO-1')])).toEqual([undefined]);
    kafka.moods.set(0, 10).set(1, 10);
    expect(await pod.send([pod.job('DO-1')])).toEqual([expect.objectContaining({ type: 'MESSAGE_TOO_LARGE' })]);
  });

  it('partitions that were added are used once a failure made the client look again', async () => {
    const keys = [0, 1, 2, 3].map((partition) => keyOf(partition, 4));
    kafka.partitions = 1;
    const all = () => pod.send(keys.map((key) => pod.job(key)));
    expect(await all()).toEqual(keys.map(() => undefined));
    kafka.partitions = 4;
    expect(await all()).toEqual(keys.map(() => undefined));
    expect([...kafka.accepted.keys()]).toEqual([0]);
    kafka.moods.set(0, 6);
    await all();
    kafka.moods.clear();
    expect(await all()).toEqual(keys.map(() => undefined));
    expect(new Set(kafka.accepted.keys())).toEqual(new Set([0, 1, 2, 3]));
  });

  it('partitions that are gone let their rows wait, and the others go on', async () => {
    expect(await pod.send(mixed())).toEqual([...well, ...well]);
    kafka.partitions = 1;
    const ends = await pod.send(mixed());
    expect(ofPartition(0, ends)).toEqual(well);
    expect(ofPartition(1, ends).every((error) => error instanceof TargetUnreachable)).toBe(true);
    expect(await pod.send(mixed())).toEqual([...well, ...well]);
  });

  it('records without a key share a call by partition as well', async () => {
    const jobs = Array.from({ length: 20 }, () => pod.job(undefined));
    expect((await pod.send(jobs)).every((end) => end === undefined)).toBe(true);
    expect(new Set(kafka.requests.map(String))).toEqual(new Set(['0', '1']));
    expect(kafka.requests).toHaveLength(2);
  });

  it('partitions that are slow to be told hold a batch unsent, until a row alone has gone through', async () => {
    const slow = new Pod('orders', { brokers: kafka.brokers, connect_timeout_ms: 200 });
    try {
      kafka.metadataMs = 400;
      const ends = await slow.send([slow.job('DO-1'), slow.job('DO-2')]);
      expect(ends).toEqual([expect.any(TargetUnreachable), expect.any(TargetUnreachable)]);
      expect(await slow.send([slow.job('DO-1')])).toEqual([undefined]);
      expect(await slow.send([slow.job('DO-1'), slow.job('DO-2')])).toEqual([undefined, undefined]);
      expect([...kafka.accepted.values()].flat()).toHaveLength(3);
    } finally {
      await slow.producer.onApplicationShutdown();
    }
  });

  it('brokers that answer again after a connect in vain get their records', async () => {
    kafka.silent = true;
    expect((await pod.send(mixed())).every((error) => error instanceof TargetUnreachable)).toBe(true);
    kafka.silent = false;
    expect(await pod.send(mixed())).toEqual([...well, ...well]);
  });

  it('brokers that are gone are nobody to have sent to', async () => {
    await kafka.close();
    const ends = await pod.send(mixed());
    expect(ends.every((error) => error instanceof TargetUnreachable)).toBe(true);
  });

  it('rows wait when the producer has stopped', async () => {
    await pod.producer.onApplicationShutdown();
    expect((await pod.send(mixed())).every((error) => error instanceof TargetUnreachable)).toBe(true);
  });

  it('sends under way end when the pod stops', async () => {
    const sends = [pod.send(mixed()), pod.send(mixed())];
    await new Promise((resolve) => setImmediate(resolve));
    await pod.producer.onApplicationShutdown();
    expect((await Promise.all(sends)).flat()).toEqual([...well, ...well, ...well, ...well]);
  });

  it('one row in flight has a handler for one row', () => {
    for (const max_in_flight of [1, undefined]) {
      const { target } = new Pod('orders', { brokers: kafka.brokers }, max_in_flight ?? 1);
      expect([target.max_in_flight, target.handler === undefined]).toEqual([1, false]);
    }
    expect(pod.target).toMatchObject({ max_in_flight: 20, batch_handler: expect.any(Function) });
  });
});

describe('at-most-once records by partition, on a broker', () => {
  const brokers = process.env['KAFKA_BROKERS']!.split(',');
  const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING });
  let admin: Admin;
  let topic: string;
  let pod: Pod;

  beforeAll(async () => {
    admin = kafka.admin();
    await admin.connect();
  });

  beforeEach(async () => {
    topic = `parts.${randomUUID().slice(0, 8)}`;
    await createTopics(topic, `${topic}.other`);
    pod = new Pod(topic, { brokers });
  });

  afterEach(async () => {
    await pod.producer.onApplicationShutdown();
    await admin.deleteTopics({ topics: [topic, `${topic}.other`] });
  });

  afterAll(async () => {
    await admin.disconnect();
  });

  async function createTopics(...names: string[]): Promise<void> {
    await admin.createTopics({
      topics: names.map((name) => ({ topic: name, numPartitions: 4 })),
      waitForLeaders: false,
    });
    for (const name of names) await sizeOfTopic(admin, name);
  }

  async function read(count: number): Promise<{ partition: number; key: string; value: unknown }[]> {
    const consumer = kafka.consumer({ groupId: randomUUID() });
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    const found: { partition: number; key: string; value: unknown }[] = [];
    await new Promise<void>((resolve, reject) => {
      consumer
        .run({
          eachMessage: async ({ partition, message }) => {
            const value = JSON.parse(String(message.value)) as unknown;
            if (found.push({ partition, key: String(message.key), value }) === count) resolve();
          },
        })
        .catch(reject);
    });
    await consumer.disconnect();
    return found;
  }

  it('keep the order of each key, in the partition where a record of its own would go', async () => {
    const keys = ['DO-1', 'DO-2', 'DO-3', 'DO-4', 'DO-5'];
    for (const key of keys) await pod.send([pod.job(key, { payload: 0 })]);
    const jobs = Array.from({ length: 60 }, (_, n) => pod.job(keys[n % 5]!, { payload: 1 + Math.floor(n / 5) }));
    for (const part of [jobs.slice(0, 20), jobs.slice(20, 40), jobs.slice(40)]) {
      expect(await pod.send(part)).toEqual(part.map(() => undefined));
    }
    const found = await read(65);
    for (const key of keys) {
      const own = found.filter((record) => record.key === key);
      expect(own.map(({ value }) => value)).toEqual(Array.from({ length: 13 }, (_, n) => n));
      expect(new Set(own.map(({ partition }) => partition)).size).toBe(1);
    }
  });

  it('spread what has no key', async () => {
    const jobs = Array.from({ length: 20 }, () => pod.job(undefined));
    expect(await pod.send(jobs)).toEqual(jobs.map(() => undefined));
    expect(new Set((await read(20)).map(({ partition }) => partition)).size).toBeGreaterThan(1);
  });

  it('one that is invalid among twenty ends alone', async () => {
    const jobs = Array.from({ length: 20 }, (_, n) => pod.job(`DO-${n}`));
    jobs[7] = pod.job('DO-7', { payload: undefined } as unknown as Partial<Job>);
    const ends = await pod.send(jobs);
    expect(ends[7]).toBeInstanceOf(JobRejected);
    expect(ends.filter((end) => end === undefined)).toHaveLength(19);
    expect(await sizeOfTopic(admin, topic)).toBe(19);
  });

  it('one that the broker refuses is refused with those of its partition, and with no others', async () => {
    const large = pod.job(keyOf(2, 4), { payload: 'x'.repeat(2_000_000) });
    const jobs = [0, 1, 2, 3, 2, 1].map((partition) => pod.job(keyOf(partition, 4)));
    const ends = await pod.send([...jobs, large]);
    const shared = expect.any(SharedFailure);
    expect(ends).toEqual([undefined, undefined, shared, undefined, shared, undefined, shared]);
    expect(await sizeOfTopic(admin, topic)).toBe(4);
  });

  it('a topic that does not exist holds its rows alone, and is not created', async () => {
    const missing = `${topic}.missing`;
    const settings = () => ({ topic_names: { [OTHER]: missing } });
    const other = new Pod(topic, { brokers, settings });
    try {
      const jobs = [CODE, OTHER, CODE, OTHER].map((code, n) => other.job(`DO-${n}`, { code }));
      const away = expect.any(TargetUnreachable);
      expect(await other.send(jobs)).toEqual([undefined, away, undefined, away]);
      expect(await other.send(jobs)).toEqual([undefined, away, undefined, away]);
      expect(await admin.listTopics()).not.toContain(missing);
    } finally {
      await other.producer.onApplicationShutdown();
    }
  });

  it('a key whose rows go to two topics sends to one of them at a time', async () => {
    const settings = () => ({ topic_names: { [OTHER]: `${topic}.other` } });
    const other = new Pod(topic, { brokers, settings });
    try {
      const jobs = [CODE, CODE, OTHER, CODE].map((code) => other.job('DO-1', { code }));
      const held = expect.any(JobHeldBack);
      expect(await other.send([...jobs, other.job('DO-2', { code: OTHER })])).toEqual([
        undefined,
        undefined,
        held,
        held,
        undefined,
      ]);
      expect(await other.send(jobs.slice(2))).toEqual([undefined, held]);
    } finally {
      await other.producer.onApplicationShutdown();
    }
  });

  it('rows behind an invalid one of their key wait for its end', async () => {
    const invalid = pod.job('DO-1', { payload: undefined } as unknown as Partial<Job>);
    const ends = await pod.send([invalid, pod.job('DO-1'), pod.job('DO-2')]);
    expect(ends).toEqual([expect.any(JobRejected), expect.any(JobHeldBack), undefined]);
  });
});
