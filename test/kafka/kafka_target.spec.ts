import { afterAll, beforeAll, beforeEach, afterEach, describe, expect, it } from '@jest/globals';
import type { Admin, KafkaMessage } from 'kafkajs';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { createServer, Socket, type AddressInfo, type Server } from 'node:net';
import { startKafka } from '../../scripts/services/kafka/kafka.handle.js';
import type { KafkaHandle } from '../../scripts/services/kafka/kafka.types.js';
import { JOBS_DEFAULTS } from '../../src/jobs/jobs.options.js';
import type { BatchAnswer, Job, JobContext } from '../../src/jobs/jobs.types.js';
import { JobTargetsRegistry } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected, TargetOutcomeUnknown, TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import type { KafkaModuleOptions, KafkaSettings } from '../../src/kafka/kafka.options.js';
import { sizeOfTopic } from './topic_offsets.js';

// The client has other defaults under NODE_ENV=test, read when it is loaded: faults are shown as in production.
process.env['NODE_ENV'] = 'production';
const { Kafka, logLevel } = await import('kafkajs');
const { resolveKafkaOptions } = await import('../../src/kafka/kafka.options.js');
const { KafkaProducer } = await import('../../src/kafka/kafka.producer.js');
const { KafkaTargets } = await import('../../src/kafka/kafka.target.js');

const context: JobContext = {
  signal: new AbortController().signal,
  attempt: 1,
  progress: () => undefined,
  complete: () => Promise.reject(new Error('not used')),
};
const PRODUCE = 0;

function jobOf(target: string, change: Partial<Job> = {}): Job {
  const id = randomUUID().replaceAll('-', '').slice(0, 24);
  const content = { id, target, code: 'order_changed', key: 'DO-1', version: 1, payload: { id }, dedupe_key: id };
  return { ...content, headers: {}, attempts: 0, created_at: new Date(0), ...change };
}

/** A pod as far as Kafka is concerned: the real registry, targets and producer. */
class Pod {
  readonly registry = new JobTargetsRegistry(JOBS_DEFAULTS);
  readonly producer: InstanceType<typeof KafkaProducer>;

  constructor(options: KafkaModuleOptions) {
    const config = resolveKafkaOptions({ connect_timeout_ms: 1_000, request_timeout_ms: 1_500, ...options }, {});
    this.producer = new KafkaProducer(config);
    new KafkaTargets(config, this.producer, this.registry).onModuleInit();
  }

  async run(job: Job): Promise<unknown> {
    return this.registry.require(job.target).handler!(job, context);
  }

  async runBatch(jobs: readonly Job[]): Promise<BatchAnswer> {
    return this.registry.require(jobs[0]!.target).batch_handler!(jobs, context);
  }
}

const failureOf = async (run: Promise<unknown>): Promise<unknown> =>
  run.then(
    () => 'success',
    (error: unknown) => error,
  );

describe('kafka:<topic> targets', () => {
  let broker: KafkaHandle;
  let admin: Admin;
  let topic: string;
  let pods: Pod[];
  let onProduce: () => void;
  const nativeWrite = Socket.prototype.write;

  const kafka = () => new Kafka({ brokers: [broker.brokers], logLevel: logLevel.NOTHING });
  const openPod = (options: KafkaModuleOptions = {}): Pod => {
    const target_topics = `${topic},${topic}.all:at_least_once`;
    const pod = new Pod({ brokers: [broker.brokers], target_topics, ...options });
    pods.push(pod);
    return pod;
  };
  const one = (change?: Partial<Job>): Job => jobOf(`kafka:${topic}`, change);
  const many = (change?: Partial<Job>): Job => jobOf(`kafka:${topic}.all`, change);

  async function useBroker(): Promise<void> {
    admin = kafka().admin();
    await admin.connect();
  }

  async function createTopics(...names: string[]): Promise<void> {
    const topics = names.map((name) => ({ topic: name, numPartitions: 4 }));
    await admin.createTopics({ topics, waitForLeaders: false });
    for (const name of names) await sizeOf(name);
  }

  const sizeOf = (name: string): Promise<number> => sizeOfTopic(admin, name);

  async function read(name: string, count: number) {
    const consumer = kafka().consumer({ groupId: randomUUID() });
    await consumer.connect();
    await consumer.subscribe({ topic: name, fromBeginning: true });
    const found: { key: string | undefined; value: string | undefined; headers: Record<string, string> }[] = [];
    await new Promise<void>((resolve, reject) => {
      const eachMessage = async ({ message }: { message: KafkaMessage }): Promise<void> => {
        const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)]);
        const record = { key: message.key?.toString(), value: message.value?.toString() };
        if (found.push({ ...record, headers: Object.fromEntries(headers) as Record<string, string> }) === count) {
          resolve();
        }
      };
      consumer.run({ eachMessage }).catch(reject);
    });
    await consumer.disconnect();
    return found;
  }

  /** Settles when a produce request of this process is being written. */
  const produceWritten = (): Promise<void> => new Promise((resolve) => (onProduce = resolve));

  /** Connections take the method over when they open: in place before each test, and only told to whom it may matter. */
  function watchWrites(): void {
    onProduce = () => undefined;
    Socket.prototype.write = function (this: Socket, ...args: unknown[]) {
      const [request] = args;
      if (Buffer.isBuffer(request) && request.length > 12 && request.readInt16BE(4) === PRODUCE) onProduce();
      return (nativeWrite as (...given: unknown[]) => boolean).apply(this, args);
    } as Socket['write'];
  }

  /** A broker that just came back refuses for a moment, while it takes up its partitions. */
  async function untilDelivered(pod: Pod, deadlineMs = 15_000): Promise<void> {
    const end = performance.now() + deadlineMs;
    for (;;) {
      const failure = await failureOf(pod.run(one()));
      if (!(failure instanceof Error)) return;
      expect(failure).toBeInstanceOf(TargetUnreachable);
      if (performance.now() > end) throw failure;
      await delay(50);
    }
  }

  beforeAll(async () => {
    broker = await startKafka();
    await useBroker();
  });

  beforeEach(async () => {
    topic = `orders.${randomUUID().slice(0, 8)}`;
    pods = [];
    watchWrites();
    await createTopics(topic, `${topic}.all`);
  });

  afterEach(async () => {
    Socket.prototype.write = nativeWrite;
    for (const pod of pods) await pod.producer.onApplicationShutdown();
  });

  afterAll(async () => {
    await admin.disconnect();
    await broker.remove();
  });

  it('deliver payload, key, event_id and trace', async () => {
    const job = one({ trace_id: 'abc', traceparent: '00-abc-def-01', headers: { shop: '7' } });
    await openPod().run(job);
    const headers = { event_id: job.id, shop: '7', trace_id: 'abc', traceparent: '00-abc-def-01' };
    expect(await read(topic, 1)).toEqual([{ key: 'DO-1', value: JSON.stringify(job.payload), headers }]);
  });

  it('deliver a batch at least once in one produce request, keys in order', async () => {
    const jobs = Array.from({ length: 100 }, (_, version) => many({ key: `DO-${version % 3}`, payload: version }));
    const pod = openPod();
    await pod.runBatch(jobs.slice(0, 1));
    let requests = 0;
    onProduce = () => requests++;
    await pod.runBatch(jobs.slice(1));
    expect(requests).toBe(1);
    const values = (await read(`${topic}.all`, 100)).filter(({ key }) => key === 'DO-1').map(({ value }) => value);
    expect(values).toEqual(Array.from({ length: 33 }, (_, index) => String(index * 3 + 1)));
  });

  it('send the jobs of a declared event to the topic that the settings name, and others to their own', async () => {
    const elsewhere = `${topic}.moved`;
    await createTopics(elsewhere);
    const topics = [{ event: 'order_changed', default_topic: topic, topic_name: 'not.used' }];
    const settings = (): KafkaSettings => ({ topic_names: { order_changed: elsewhere, other: 'not.used' } });
    const pod = openPod({ topics, settings });
    await pod.run(one());
    await pod.run(one({ code: 'other' }));
    expect([await sizeOf(topic), await sizeOf(elsewhere)]).toEqual([1, 1]);
  });

  it('obey the enabled flag of the options and of the settings, and say so', async () => {
    let enabled = false;
    const pod = openPod({ settings: async () => ({ enabled }) });
    expect(await failureOf(pod.run(one()))).toEqual(new TargetUnreachable('Kafka is disabled in the settings'));
    enabled = true;
    await pod.run(one());
    expect(await failureOf(openPod({ enabled: false }).run(one()))).toBeInstanceOf(TargetUnreachable);
    expect(await sizeOf(topic)).toBe(1);
  });

  it('wait while the settings cannot be read', async () => {
    const pod = openPod({ settings: () => Promise.reject(new Error('no database')) });
    expect(await failureOf(pod.run(one()))).toBeInstanceOf(TargetUnreachable);
  });

  it('wait while no brokers are configured', async () => {
    expect(await failureOf(openPod({ brokers: [] }).run(one()))).toBeInstanceOf(TargetUnreachable);
  });

  it('wait for a topic that does not exist, create none, and disturb no other topic', async () => {
    const missing = `${topic}.missing`;
    const pod = openPod({ target_topics: `${topic},${missing}` });
    expect(await failureOf(pod.run(jobOf(`kafka:${missing}`)))).toBeInstanceOf(TargetUnreachable);
    expect(await admin.listTopics()).not.toContain(missing);
    await pod.run(one());
    expect(await sizeOf(topic)).toBe(1);
  });

  it('go on with other topics after one they sent to was deleted', async () => {
    const pod = openPod();
    await pod.runBatch([many()]);
    await admin.deleteTopics({ topics: [`${topic}.all`] });
    expect(await failureOf(pod.runBatch([many()]))).toBeInstanceOf(TargetUnreachable);
    await pod.run(one());
    expect(await sizeOf(topic)).toBe(1);
  });

  it("answer with the broker's refusal when one message is too large, for the whole batch", async () => {
    const large = 'x'.repeat(2_000_000);
    const pod = openPod();
    const refusal = { type: 'MESSAGE_TOO_LARGE' };
    expect(await failureOf(pod.run(one({ payload: large })))).toMatchObject(refusal);
    expect(await failureOf(pod.runBatch([many({ payload: large }), many()]))).toMatchObject(refusal);
    expect(await sizeOf(`${topic}.all`)).toBe(0);
  });

  it('reject an empty payload for good without losing the rest of its batch', async () => {
    const empty = { payload: undefined } as unknown as Partial<Job>;
    const pod = openPod();
    expect(await failureOf(pod.run(one(empty)))).toBeInstanceOf(JobRejected);
    const answer = await pod.runBatch([many(empty), many()]);
    expect(answer).toEqual([expect.any(JobRejected), undefined]);
    expect(await sizeOf(`${topic}.all`)).toBe(1);
  });

  it('do not know the end of a send to a frozen broker, which takes it when it runs again', async () => {
    const pod = openPod();
    await pod.run(one());
    broker.freeze();
    const failure = await failureOf(pod.run(one()));
    broker.thaw();
    expect(failure).toBeInstanceOf(TargetOutcomeUnknown);
    expect(failure).toMatchObject({ target_up: false });
    await pod.run(one());
    expect(await sizeOf(topic)).toBe(3);
  });

  it('know that nothing was sent when the broker was frozen before the connect', async () => {
    const pod = openPod();
    broker.freeze();
    const failure = await failureOf(pod.run(one()));
    broker.thaw();
    expect(failure).toBeInstanceOf(TargetUnreachable);
  });

  it('cannot reach a stopped broker, and deliver again after its restart', async () => {
    const pod = openPod();
    await pod.run(one());
    await admin.disconnect();
    await broker.stop();
    expect(await failureOf(pod.run(one()))).toBeInstanceOf(TargetUnreachable);
    expect(await failureOf(pod.run(one()))).toBeInstanceOf(TargetUnreachable);
    await broker.restart();
    await useBroker();
    await untilDelivered(pod);
    expect(await sizeOf(topic)).toBe(2);
  });

  it('do not call a send unsent because the reconnect after it is refused', async () => {
    const pod = openPod();
    await pod.run(one());
    await admin.disconnect();
    broker.freeze();
    const written = produceWritten();
    const failure = failureOf(pod.run(one()));
    await written;
    process.kill(broker.pid, 'SIGKILL');
    expect(await failure).toBeInstanceOf(TargetOutcomeUnknown);
    await broker.restart();
    await useBroker();
    await untilDelivered(pod);
  });

  it('reach the cluster through its second address while the first is dead', async () => {
    const dead = await listen();
    const { port } = dead.address() as AddressInfo;
    await new Promise((resolve) => dead.close(resolve));
    for (const brokers of [
      [`127.0.0.1:${port}`, broker.brokers],
      [broker.brokers, `127.0.0.1:${port}`],
    ]) {
      await openPod({ brokers }).run(one());
    }
    expect(await sizeOf(topic)).toBe(2);
  });

  it('end a connect that nobody answers', async () => {
    const silent = await listen();
    const { port } = silent.address() as AddressInfo;
    const pod = openPod({ brokers: [`127.0.0.1:${port}`], connect_timeout_ms: 200 });
    expect(await failureOf(pod.run(one()))).toBeInstanceOf(TargetUnreachable);
    await pod.producer.onApplicationShutdown();
    await new Promise((resolve) => silent.close(resolve));
  });

  it('refuse to start with timeouts that outlast a run of the lane', () => {
    expect(() => openPod({ connect_timeout_ms: 3_000, request_timeout_ms: 10_501 })).toThrow(
      /kafka.request_timeout_ms: .*\(15000\), got 15001/s,
    );
  });

  it('let the sends under way end when the pod stops, and send nothing after', async () => {
    const pod = openPod();
    const written = produceWritten();
    const sends = [1, 2, 3].map(() => pod.run(one()));
    await written;
    await pod.producer.onApplicationShutdown();
    await Promise.all(sends);
    expect(await sizeOf(topic)).toBe(3);
    expect(await failureOf(pod.run(one()))).toBeInstanceOf(TargetUnreachable);
  });
});

async function listen(): Promise<Server> {
  const server = createServer((socket) => socket.resume());
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}
