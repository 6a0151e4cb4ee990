import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { LossyDropReason } from '../../src/jobs/jobs.events.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import { LossyConnections } from '../../src/jobs/lossy/lossy_connections.js';
import { LossyProcessor } from '../../src/jobs/lossy/lossy.processor.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { addedJob } from '../faults/bench/bull_wire.js';
import { TcpProxy } from '../faults/bench/tcp_proxy.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { realClock } from '../support/real_clock.js';
import { BlackHole, TestRedis } from '../support/redis_server.js';
import { waitFor } from '../support/wait_for.js';

const T = 'metrics:seen';
const target: JobTargetOptions = { name: T, lane: 'fast', lossy: true, handler: async () => undefined };
const durable: JobTargetOptions = { name: 'test:send', lane: 'fast', handler: async () => undefined };
/** What a commit may wait, with room for a machine that does other things as well. */
const DEADLINE_MS = 200;
const ROOM_MS = 800;

describe('lossy targets while Redis fails', () => {
  const db = new TestDatabase();
  const servers: TestRedis[] = [];
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);

  beforeAll(() => {
    process.on('unhandledRejection', note);
    process.on('uncaughtException', note);
  });
  afterEach(async () => {
    await db.reset();
    for (const server of servers.splice(0)) await server.dispose();
    // Rejections are told after the microtasks of their turn.
    await new Promise((resolve) => setImmediate(resolve));
    expect(unhandled.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    process.off('unhandledRejection', note);
    process.off('uncaughtException', note);
    await db.drop();
  });

  const redis = async (...args: string[]): Promise<TestRedis> => {
    const server = await TestRedis.start(...args);
    servers.push(server);
    return server;
  };
  const pod = async (url: string, options: JobsModuleOptions = {}): Promise<TestPod> =>
    db.pod({ redis: { url }, workers: 'on', ...options }, [target, durable], await realClock());

  const drops = (a: TestPod): { count: number; reasons: LossyDropReason[] } => {
    const events = a.eventsOf('lossy_dropped');
    return {
      count: events.reduce((sum, event) => sum + event.count, 0),
      reasons: [...new Set(events.map((event) => event.reason))],
    };
  };

  /** A business transaction with `calls` enqueues of a lossy and one of a durable target; how long it took, in ms. */
  async function business(a: TestPod, calls = 1): Promise<number> {
    const begun = performance.now();
    await inTransaction(a.connection, async (tx) => {
      await a.connection.collection('orders').insertOne({ no: 1 }, { session: tx.session });
      for (let n = 0; n < calls; n++) await a.sideEffect.enqueue(T, n);
      await a.sideEffect.enqueue('test:send', 1, { delay_ms: 60_000 });
    });
    return performance.now() - begun;
  }

  /** What the same transaction costs here and now, without Redis in it. */
  async function baseline(a: TestPod): Promise<number> {
    const begun = performance.now();
    await inTransaction(a.connection, async (tx) => {
      await a.connection.collection('orders').insertOne({ no: 0 }, { session: tx.session });
      await a.sideEffect.enqueue('test:send', 1, { delay_ms: 60_000 });
    });
    return performance.now() - begun;
  }

  async function prepare(a: TestPod): Promise<number> {
    await a.connection.createCollection('orders').catch(() => undefined);
    await baseline(a);
    return Math.max(await baseline(a), await baseline(a));
  }

  it('down from the start: commits do not wait, every job is counted, one sum a second is logged, the boot is not held', async () => {
    const server = await TestRedis.absent();
    servers.push(server);
    const begun = performance.now();
    const a = await pod(server.url);
    expect(performance.now() - begun).toBeLessThan(10_000);
    await waitFor('the first attempt ended', () => a.eventsOf('redis_state').length > 0);
    const usual = await prepare(a);
    for (let n = 0; n < 20; n++) expect(await business(a, 5)).toBeLessThan(usual * 5 + ROOM_MS);
    expect(drops(a)).toEqual({ count: 100, reasons: ['unreachable'] });
    expect(await a.connection.collection('orders').countDocuments({ no: 1 })).toBe(20);
    const seconds = (performance.now() - begun) / 1000;
    expect(a.eventsOf('lossy_drops_summed').length).toBeLessThanOrEqual(Math.ceil(seconds) + 1);
    expect(a.eventsOf('redis_state').filter((event) => event.use === 'lossy')).toHaveLength(1);
  });

  it('down, then up: jobs flow again, and none that was dropped turns up late', async () => {
    const server = await TestRedis.absent();
    servers.push(server);
    const ran: unknown[] = [];
    const a = await db.pod(
      { redis: { url: server.url }, workers: 'on' },
      [{ ...target, handler: async (job) => void ran.push(job.payload) }],
      await realClock(),
    );
    await a.sideEffect.enqueue(T, 'dropped');
    await server.start();
    await waitFor('Redis is seen', () => a.eventsOf('redis_state').some((e) => e.use === 'lossy' && e.state === 'up'));
    await a.sideEffect.enqueue(T, 'kept');
    await waitFor('the job ran', () => ran.length > 0);
    expect(ran).toEqual(['kept']);
    await server.stop();
    await waitFor('it is missed', () => a.eventsOf('redis_state').filter((e) => e.use === 'lossy').length === 3);
    await a.sideEffect.enqueue(T, 'dropped');
    await server.start();
    await waitFor('it is back', () => a.eventsOf('redis_state').filter((e) => e.use === 'lossy').length === 4);
    await a.sideEffect.enqueue(T, 'kept again');
    await waitFor('it ran', () => ran.length > 1);
    expect(ran).toEqual(['kept', 'kept again']);
    expect(drops(a)).toEqual({ count: 2, reasons: ['unreachable'] });
  });

  it('frozen: the commit that meets it waits its deadline once, whatever it enqueued, the next ones not at all; then it recovers', async () => {
    const server = await redis();
    const a = await pod(server.url, { workers: 'manual' });
    await a.sideEffect.enqueue(T, 'before');
    const usual = await prepare(a);
    server.freeze();
    const first = await business(a, 10);
    expect(first).toBeGreaterThanOrEqual(DEADLINE_MS - 5);
    expect(first).toBeLessThan(usual * 10 + DEADLINE_MS + ROOM_MS);
    for (let n = 0; n < 5; n++) expect(await business(a)).toBeLessThan(usual * 3 + ROOM_MS);
    const alone = performance.now();
    for (let n = 0; n < 1_000; n++) await a.sideEffect.enqueue(T, n);
    expect(performance.now() - alone).toBeLessThan(2_000);
    expect(drops(a)).toEqual({ count: 1_015, reasons: ['timeout'] });
    server.resume();
    await waitFor('a job is taken again', async () => {
      const before = drops(a).count;
      await a.sideEffect.enqueue(T, 'after');
      return drops(a).count === before;
    });
  });

  it('frozen while the pod connects: what its commits gave up on is not sent when it wakes', async () => {
    const server = await redis();
    server.freeze();
    const a = await pod(server.url, { workers: 'manual' });
    await a.sideEffect.enqueueMany([
      { target: T, payload: 1 },
      { target: T, payload: 2 },
    ]);
    expect(drops(a)).toEqual({ count: 2, reasons: ['timeout'] });
    server.resume();
    await waitFor('it is connected', () => a.eventsOf('redis_state').length > 0);
    await a.sideEffect.enqueue(T, 3);
    const client = new Redis(server.url);
    expect(await client.llen('bull:side_effect_lossy:wait')).toBe(1);
    client.disconnect();
  });

  it('a black hole: neither boot nor commit nor shutdown waits for it', async () => {
    const hole = await BlackHole.open();
    const a = await pod(hole.url);
    const usual = await prepare(a);
    expect(await business(a, 10)).toBeLessThan(usual * 10 + DEADLINE_MS + ROOM_MS);
    for (let n = 0; n < 5; n++) expect(await business(a)).toBeLessThan(usual * 3 + ROOM_MS);
    expect(drops(a)).toEqual({ count: 15, reasons: ['timeout'] });
    const begun = performance.now();
    await a.close();
    expect(performance.now() - begun).toBeLessThan(3_000);
    await waitFor('no socket is left', () => hole.connections === 0);
    await hole.close();
  });

  it('an answer that is lost: the job counts as dropped, and what was taken runs once, also when the connection is back', async () => {
    const server = await redis();
    const proxy = await TcpProxy.open(server.port);
    const ran: unknown[] = [];
    const handler = async (job: { payload: unknown }): Promise<void> => void ran.push(job.payload);
    await db.pod({ redis: { url: server.url }, workers: 'on' }, [{ ...target, handler }], await realClock());
    const a = await pod(`redis://127.0.0.1:${proxy.port}`, { workers: 'manual' });
    const states = (): number => a.eventsOf('redis_state').filter(({ use }) => use === 'lossy').length;
    await waitFor('it is connected', () => states() === 1);
    proxy.loseReply(addedJob);
    await a.sideEffect.enqueue(T, 'untold');
    expect(proxy.lost).toHaveLength(1);
    expect(drops(a)).toEqual({ count: 1, reasons: ['unreachable'] });
    await waitFor('it ran', () => ran.length > 0);
    await waitFor('the connection is back', () => states() === 3);
    await a.sideEffect.enqueue(T, 'next');
    await waitFor('the next one ran', () => ran.includes('next'));
    expect(ran).toEqual(['untold', 'next']);
    expect(drops(a).count).toBe(1);
    await a.close();
    await proxy.close();
  });

  it('the connection that waits for jobs is cut for its own silence alone', async () => {
    const server = await redis();
    const a = await pod(server.url, { workers: 'manual' });
    const client = a.module.get(LossyConnections).open('bclient');
    client.options.socketTimeout = 2_000;
    await waitFor('it is connected', () => client.status === 'ready');
    server.freeze();
    const resent = client.ping();
    await server.stop();
    await server.start();
    await resent;
    server.freeze();
    const begun = performance.now();
    const unanswered = client.ping();
    await new Promise((resolve) => client.once('close', resolve));
    expect(performance.now() - begun).toBeGreaterThan(1_990);
    server.resume();
    await unanswered;
  });

  it('wrong password: dropped at once and said why; the password is nowhere in what is told', async () => {
    const server = await redis('--requirepass', 'right');
    const a = await pod(server.url.replace('//', '//:wrong-secret@'));
    await waitFor('the login was refused', () => a.eventsOf('redis_state').some((event) => event.use === 'lossy'));
    const usual = await prepare(a);
    expect(await business(a, 3)).toBeLessThan(usual * 5 + ROOM_MS);
    expect(drops(a)).toEqual({ count: 3, reasons: ['login'] });
    const told = a.events.map((event) => JSON.stringify(event) + ('error' in event ? String(event.error) : ''));
    expect(told.join()).not.toContain('wrong-secret');
  });

  it('full: refused jobs are dropped and counted, the transaction is committed', async () => {
    const server = await redis('--maxmemory', '1mb');
    const client = new Redis(server.url);
    const filled = (n: number): Promise<boolean> =>
      client.set(`filler:${n}`, 'x'.repeat(1_000)).then(
        () => false,
        () => true,
      );
    for (let n = 0; !(await filled(n)); n++);
    const a = await pod(server.url, { workers: 'manual' });
    const usual = await prepare(a);
    expect(await business(a, 3)).toBeLessThan(usual * 5 + ROOM_MS);
    expect(drops(a)).toEqual({ count: 3, reasons: ['full'] });
    expect(await client.exists('bull:side_effect_lossy:wait')).toBe(0);
    client.disconnect();
  });

  it('more at once than may be on their way: the rest is dropped at once', async () => {
    const server = await redis();
    const a = await pod(server.url, { workers: 'manual', lossy: { max_in_flight: 10 } });
    await waitFor('it is connected', () => a.eventsOf('redis_state').length > 0);
    await a.sideEffect.enqueueMany(Array.from({ length: 25 }, (_, n) => ({ target: T, payload: n })));
    expect(drops(a)).toEqual({ count: 15, reasons: ['busy'] });
    const client = new Redis(server.url);
    expect(await client.llen('bull:side_effect_lossy:wait')).toBe(10);
    await a.sideEffect.enqueue(T, 'next');
    expect(await client.llen('bull:side_effect_lossy:wait')).toBe(11);
    client.disconnect();
  });

  it('large payloads on their way are bounded in bytes, too', async () => {
    const server = await redis();
    const a = await pod(server.url, { workers: 'manual' });
    await waitFor('it is connected', () => a.eventsOf('redis_state').length > 0);
    server.freeze();
    const payload = 'x'.repeat(1_000_000);
    await a.sideEffect.enqueueMany(Array.from({ length: 50 }, () => ({ target: T, payload })));
    expect(drops(a)).toEqual({ count: 50, reasons: ['busy', 'timeout'] });
    expect(a.eventsOf('lossy_dropped').filter((event) => event.reason === 'busy').length).toBeGreaterThan(15);
  });

  it('a shutdown while Redis is frozen, with a processor at work, does not hang and leaves no socket', async () => {
    const server = await redis();
    const a = await pod(server.url);
    await a.sideEffect.enqueue(T, 1);
    await waitFor('it ran', () => a.eventsOf('run_ended').length === 1);
    server.freeze();
    const begun = performance.now();
    await a.close();
    expect(performance.now() - begun).toBeLessThan(3_000);
    server.resume();
    const client = new Redis(server.url);
    await waitFor(
      'no connection is left',
      async () =>
        String(await client.client('LIST'))
          .trim()
          .split('\n').length === 1,
    );
    client.disconnect();
  });

  it('a shutdown while the processor still connects leaves no rejection unhandled', async () => {
    const server = await redis();
    const a = await db.pod({ redis: { url: server.url }, workers: 'manual' }, [target], await realClock());
    await waitFor('it is connected', () => a.eventsOf('redis_state').length > 0);
    server.freeze();
    a.module.get(LossyProcessor).start();
    const begun = performance.now();
    await a.close();
    expect(performance.now() - begun).toBeLessThan(3_000);
  });

  it('a job whose pod was killed in the middle is not run a second time', async () => {
    const server = await redis();
    const client = new Redis(server.url);
    const prefix = 'bull:side_effect_lossy';
    const id = 'a'.repeat(24);
    // As a killed pod leaves it: active, without a lock, seen without one before.
    await client.hset(`${prefix}:${id}`, {
      name: '__default__',
      data: JSON.stringify({ target: T, code: T, payload: 1 }),
      opts: '{"attempts":1,"removeOnFail":true,"removeOnComplete":true}',
      timestamp: 1,
      delay: 0,
      priority: 0,
    });
    await client.lpush(`${prefix}:active`, id);
    await client.sadd(`${prefix}:stalled`, id);
    const a = await pod(server.url);
    await waitFor('it is gone', async () => (await client.llen(`${prefix}:active`)) === 0);
    await waitFor('it is counted', () => drops(a).count === 1);
    expect(drops(a).reasons).toEqual(['stalled']);
    expect(a.eventsOf('run_ended')).toEqual([]);
    expect(await client.exists(`${prefix}:${id}`)).toBe(0);
    client.disconnect();
  });
});
