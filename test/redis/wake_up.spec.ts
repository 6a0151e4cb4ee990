import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import { partitionOf } from '../../src/jobs/policy/partition.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { realClock } from '../support/real_clock.js';
import { TestRedis } from '../support/redis_server.js';
import { waitFor } from '../support/wait_for.js';

const FAST = 'test:fast';
const LONG = 'test:long';
const MINUTE = 60_000;
/** Far above what a wake-up takes, far below the poll. */
const SOON_MS = 5_000;

describe('wake-ups between pods', () => {
  const db = new TestDatabase();
  let server: TestRedis;
  let redis: Redis;
  let starts: string[] = [];

  beforeAll(async () => {
    server = await TestRedis.start();
    redis = new Redis(server.url, { retryStrategy: () => 50 });
    redis.on('error', () => undefined);
  });
  afterEach(async () => {
    starts = [];
    await db.reset();
  });
  afterAll(async () => {
    await db.drop();
    redis.disconnect();
    await server.dispose();
  });

  const targets = (name: string): JobTargetOptions[] =>
    [FAST, LONG].map((target) => ({
      name: target,
      lane: target === FAST ? 'fast' : 'long',
      handler: async (job) => void starts.push(`${name} ${target} ${JSON.stringify(job.payload)}`),
    }));

  /** Polls that stay out of the test's way; leases short enough for two pods to share quickly. */
  const slow = (idle = MINUTE): JobsModuleOptions => ({
    workers: 'on',
    partitions: 2,
    redis: { url: server.url },
    fast_lane: { idle_poll_ms: [idle], timeout_ms: 1_000 },
    long_lane: { idle_poll_ms: [idle], sweep_ms: MINUTE },
    lease: { ttl_ms: 6_000, heartbeat_ms: 100, margin_ms: 100, worker_ttl_ms: 2_000 },
  });
  const pod = async (name: string, options: JobsModuleOptions): Promise<TestPod> =>
    db.pod(options, targets(name), await realClock());

  const isUp = (each: TestPod): boolean => each.eventsOf('redis_state').at(-1)?.state === 'up';
  const numsub = async (): Promise<number> => Number((await redis.pubsub('NUMSUB', `sidelane:${db.name}:wake`))[1]);

  /** Two pods with one partition each, both listening, with nothing to do. */
  async function couple(options = slow()): Promise<{ a: TestPod; b: TestPod; keyOfB: string }> {
    const a = await pod('a', options);
    const b = await pod('b', options);
    const one = ({ leases }: TestPod): boolean => leases.readable().length === 1;
    await waitFor('each owns one partition', () => one(a) && one(b));
    if (options.hints !== 'off')
      await waitFor('both talk and listen', async () => isUp(a) && isUp(b) && (await numsub()) === 2);
    const mine = b.leases.readable()[0]!.partition;
    const keyOfB = Array.from({ length: 100 }, (_, n) => `k${n}`).find((key) => partitionOf(key, 2) === mine)!;
    return { a, b, keyOfB };
  }

  it('a row enqueued on one pod starts on the pod that owns it, though that one polls once a minute', async () => {
    const { a, b, keyOfB } = await couple();
    await a.sideEffect.enqueue(FAST, 1, { key: keyOfB });
    await waitFor('it ran', () => starts.length === 1, SOON_MS);
    expect(starts).toEqual(['b test:fast 1']);
    expect(b.eventsOf('hinted')).toHaveLength(1);
  });

  it('with hints off the same row waits for the poll: it was the hint that started it', async () => {
    const { a, b, keyOfB } = await couple({ ...slow(), hints: 'off' });
    await a.sideEffect.enqueue(FAST, 1, { key: keyOfB });
    await expect(waitFor('it ran', () => starts.length === 1, 1_000)).rejects.toThrow('not within');
    expect([...a.eventsOf('hinted'), ...b.eventsOf('hinted')]).toEqual([]);
    expect(String(await redis.client('LIST'))).not.toMatch(/name=sidelane/);
  });

  it('a pod that only enqueues wakes both lanes of the others, and hears nothing itself', async () => {
    const b = await pod('b', slow());
    const a = await pod('a', { ...slow(), workers: 'off' });
    await waitFor('a can tell', () => isUp(a));
    await waitFor('b listens, alone', async () => (await numsub()) === 1 && b.leases.readable().length === 2);
    await a.sideEffect.enqueue(LONG, 1);
    await waitFor('the long row ran', () => starts.length === 1, SOON_MS);
    await a.sideEffect.enqueue(FAST, 2);
    await waitFor('the fast row ran', () => starts.length === 2, SOON_MS);
    expect(starts).toEqual(['b test:long 1', 'b test:fast 2']);
  });

  it('a commit is one message, however often it enqueued; nobody passes on what it heard', async () => {
    const { a, b, keyOfB } = await couple();
    const messages: string[] = [];
    const listener = new Redis(server.url);
    listener.on('message', (_channel, text) => void messages.push(text));
    await listener.subscribe(`sidelane:${db.name}:wake`);
    await inTransaction(a.connection, async () => {
      for (let n = 0; n < 5; n++) await a.sideEffect.enqueue(FAST, n, { key: keyOfB });
      await a.sideEffect.enqueueMany([{ target: LONG, payload: 5 }]);
    });
    await waitFor('all ran', () => starts.length === 6, SOON_MS);
    await a.sideEffect.enqueue(FAST, 'last', { key: keyOfB });
    await waitFor('the last ran', () => starts.length === 7, SOON_MS);
    expect(messages).toHaveLength(2);
    // Six calls and one, each told here once, and two messages there: nobody hears itself.
    expect([a.eventsOf('hinted').length, b.eventsOf('hinted').length]).toEqual([7, 2]);
    expect(messages[0]!.length).toBeLessThan(200);
    listener.disconnect();
  });

  it('"all" makes the lanes look at everything', async () => {
    const { b, keyOfB } = await couple();
    const silent = await pod('c', { ...slow(), workers: 'off', hints: 'off' });
    await silent.sideEffect.enqueue(FAST, 1, { key: keyOfB });
    await silent.sideEffect.enqueue(LONG, 2);
    await redis.publish(`sidelane:${db.name}:wake`, '{"from":"x","cells":"all"}');
    await waitFor('both ran', () => starts.length === 2, SOON_MS);
    expect(b.eventsOf('hinted')).toEqual([{ type: 'hinted', cells: 'all' }]);
  });

  it('what is no hint is counted and ignored, and a hint for what nobody has changes nothing', async () => {
    const { b } = await couple();
    const channel = `sidelane:${db.name}:wake`;
    for (const text of ['', '{', '{"from":"x","cells":[["fast",1]]}']) await redis.publish(channel, text);
    await redis.publish(
      channel,
      '{"from":"x","cells":[["fast","no:such",1],["fast","test:fast",-7],["long","no:such",0]]}',
    );
    await waitFor('all were heard', () => b.eventsOf('hinted').length === 1);
    expect(b.eventsOf('hint_ignored')).toHaveLength(3);
    expect([...b.eventsOf('loop_failed'), ...b.eventsOf('round_failed')]).toEqual([]);
  });

  it('with Redis gone it is only slower, silently; when it is back, hints are too', async () => {
    const { a, b, keyOfB } = await couple(slow(700));
    await server.stop();
    await waitFor('both know', () => [a, b].every((each) => each.eventsOf('redis_state').at(-1)?.state === 'down'));
    for (let n = 0; n < 20; n++) await a.sideEffect.enqueue(FAST, n, { key: keyOfB, version: n });
    await waitFor('they ran at the poll', () => starts.length === 20);
    expect(starts).toEqual(Array.from({ length: 20 }, (_, n) => `b test:fast ${n}`));
    expect(b.eventsOf('hinted')).toEqual([]);
    expect(a.eventsOf('redis_state').map((event) => event.state)).toEqual(['up', 'down']);
    await server.start();
    await waitFor('both listen again', async () => (await numsub()) === 2);
    await waitFor('a is up', () => a.eventsOf('redis_state').at(-1)?.state === 'up');
    await a.sideEffect.enqueue(FAST, 'again', { key: keyOfB });
    await waitFor('b heard of it', () => b.eventsOf('hinted').length === 1);
    await waitFor('it ran', () => starts.length === 21);
  });

  it('a frozen Redis delays no commit, and what is not told meanwhile is told in one message', async () => {
    const { a, b, keyOfB } = await couple();
    server.freeze();
    const begun = performance.now();
    for (let n = 0; n < 100; n++) await a.sideEffect.enqueue(FAST, n, { key: keyOfB, version: n });
    expect(performance.now() - begun).toBeLessThan(4_000);
    server.resume();
    await waitFor('all ran', () => starts.length === 100, SOON_MS);
    expect(b.eventsOf('hinted').length).toBeLessThanOrEqual(3);
  });

  it('in manual mode, and without a URL, there is no connection', async () => {
    await pod('a', { ...slow(), workers: 'manual' });
    await pod('b', { ...slow(), redis: { url: '' } });
    expect(String(await redis.client('LIST'))).not.toMatch(/name=sidelane/);
  });
});
