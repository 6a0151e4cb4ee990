import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Redis } from 'ioredis';
import mongoose from 'mongoose';
import { requestContext } from '../../src/common/request_context.js';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import type { Job, JobContext } from '../../src/jobs/jobs.types.js';
import { LossyProcessor } from '../../src/jobs/lossy/lossy.processor.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { realClock } from '../support/real_clock.js';
import { TestRedis } from '../support/redis_server.js';
import { waitFor } from '../support/wait_for.js';

const T = 'metrics:seen';
const target = (handler: JobTargetOptions['handler'] = async () => undefined): JobTargetOptions => ({
  name: T,
  lane: 'fast',
  lossy: true,
  handler,
});
const durable: JobTargetOptions = { name: 'test:send', lane: 'fast', handler: async () => undefined };

describe('lossy targets', () => {
  const db = new TestDatabase();
  let server: TestRedis;
  let redis: Redis;

  beforeAll(async () => {
    server = await TestRedis.start();
    redis = new Redis(server.url);
  });
  afterEach(async () => {
    await db.reset();
    await redis.flushall();
  });
  afterAll(async () => {
    await db.drop();
    redis.disconnect();
    await server.dispose();
  });

  const pod = async (options: JobsModuleOptions = {}, targets = [target(), durable]): Promise<TestPod> =>
    // Time to hand over even on a machine that is busy elsewhere: what is too slow is dropped, and that is tested apart.
    db.pod(
      { redis: { url: server.url }, ...options, lossy: { handover_timeout_ms: 10_000, ...options.lossy } },
      targets,
      await realClock(),
    );
  const waiting = (): Promise<number> => redis.llen('bull:side_effect_lossy:wait');
  const data = async (): Promise<unknown> => {
    const [id] = await redis.lrange('bull:side_effect_lossy:wait', 0, -1);
    return JSON.parse((await redis.hget(`bull:side_effect_lossy:${id}`, 'data')) ?? 'null');
  };
  const keysLeft = async (): Promise<string[]> =>
    (await redis.keys('bull:side_effect_lossy:*')).filter((key) => /:[0-9a-f]{24}$/.test(key));

  it('a committed transaction hands its lossy job over, as the contract names it, and writes no row', async () => {
    const a = await pod();
    const result = await inTransaction(a.connection, () =>
      requestContext.run({ trace_id: 't1', actor: { user: 'u' } }, () =>
        a.sideEffect.enqueue(T, { n: 1 }, { code: 'seen', key: 'k', headers: { h: 'v' } }),
      ),
    );
    expect(result).toEqual({ inserted: false, lossy: true });
    expect(await waiting()).toBe(1);
    expect(await data()).toEqual({
      target: T,
      code: 'seen',
      key: 'k',
      payload: { n: 1 },
      trace_id: 't1',
      actor: { user: 'u' },
      headers: { h: 'v' },
    });
    expect(await a.jobs.countDocuments()).toBe(0);
  });

  it('an aborted transaction hands nothing over, nor does the attempt that a conflict made the driver repeat', async () => {
    const a = await pod();
    const aborted = inTransaction(a.connection, async () => {
      await a.sideEffect.enqueue(T, 1);
      throw new Error('business said no');
    });
    await expect(aborted).rejects.toThrow('business said no');
    expect(await waiting()).toBe(0);
    let attempts = 0;
    const transient = new mongoose.mongo.MongoServerError({ message: 'conflict' });
    transient.addErrorLabel('TransientTransactionError');
    await inTransaction(a.connection, async () => {
      attempts++;
      await a.sideEffect.enqueue(T, attempts);
      await a.sideEffect.enqueue(T, attempts);
      if (attempts === 1) throw transient;
    });
    expect(attempts).toBe(2);
    expect(await waiting()).toBe(2);
  });

  it("Mongoose's own transactions count, too: an aborted attempt of a session leaves nothing for its next one", async () => {
    const a = await pod();
    const session = await a.connection.startSession();
    session.startTransaction();
    await a.sideEffect.enqueue(T, 'aborted', {}, { session });
    await session.abortTransaction();
    session.startTransaction();
    await a.sideEffect.enqueue(T, 'kept', {}, { session });
    await a.sideEffect.enqueue('test:send', 1, {}, { session });
    await session.commitTransaction();
    await session.endSession();
    expect(await waiting()).toBe(1);
    expect(await data()).toMatchObject({ payload: 'kept' });
  });

  it('outside of a transaction it is handed over at once, beside rows that must not be lost', async () => {
    const a = await pod();
    const results = await a.sideEffect.enqueueMany([
      { target: T, payload: 1, dedupe_key: 'd' },
      { target: 'test:send', payload: 2, dedupe_key: 'd' },
      { target: T, payload: 3, dedupe_key: 'd' },
    ]);
    expect(results).toEqual([
      { inserted: false, lossy: true },
      { inserted: true, lossy: false },
      { inserted: false, lossy: true },
    ]);
    expect(await waiting()).toBe(1);
    expect((await a.jobs.find({}).toArray()).map((row) => row.payload)).toEqual([2]);
  });

  it.each([{ run_at: new Date(0) }, { delay_ms: 1 }, { priority: 3 as const }])(
    'a wish that a lossy target cannot fulfil (%j) is refused before anything is written',
    async (options) => {
      const a = await pod();
      await expect(a.sideEffect.enqueue(T, 1, options)).rejects.toMatchObject({
        code: 'invalid_options',
        field: `items[0].${Object.keys(options)[0]}`,
      });
      expect(await waiting()).toBe(0);
    },
  );

  it('runs once on a pod with workers, in the context of who enqueued it, and is removed from Redis', async () => {
    const seen: { job: Job; context: JobContext; actor: unknown }[] = [];
    const a = await pod({ workers: 'on' }, [
      target(async (job, context) => void seen.push({ job, context, actor: requestContext.current()?.actor })),
    ]);
    await requestContext.run({ trace_id: 't1', actor: { user: 'u' } }, () =>
      a.sideEffect.enqueue(T, { n: 1 }, { key: 'k', version: 7, dedupe_key: 'd', headers: { h: 'v' } }),
    );
    await waitFor('the job ran', () => a.eventsOf('run_ended').length === 1);
    expect(seen).toMatchObject([
      {
        job: { target: T, code: T, key: 'k', version: 7, dedupe_key: 'd', payload: { n: 1 }, headers: { h: 'v' } },
        context: { attempt: 1, trace_id: 't1' },
        actor: { user: 'u', via: 'system' },
      },
    ]);
    await expect(seen[0]!.context.complete(async () => undefined)).rejects.toMatchObject({ code: 'not_supported' });
    await waitFor('the job left Redis', async () => (await keysLeft()).length === 0);
    expect(a.eventsOf('lossy_dropped')).toEqual([]);
  });

  it('a failure drops it: one run, counted, nothing left in Redis', async () => {
    let runs = 0;
    const a = await pod({ workers: 'on' }, [
      target(async () => {
        runs++;
        throw new Error('no');
      }),
    ]);
    await a.sideEffect.enqueue(T, 1);
    await waitFor('the drop is counted', () => a.eventsOf('lossy_dropped').length === 1);
    await waitFor('the job left Redis', async () => (await keysLeft()).length === 0);
    await a.sideEffect.enqueue(T, 2);
    await waitFor('the second drop is counted', () => a.eventsOf('lossy_dropped').length === 2);
    expect(runs).toBe(2);
    expect(a.eventsOf('lossy_dropped')).toMatchObject([
      { target: T, count: 1, reason: 'failed' },
      { reason: 'failed' },
    ]);
    expect(a.eventsOf('run_ended').map((event) => event.result)).toEqual(['dropped', 'dropped']);
    expect(await redis.zcard('bull:side_effect_lossy:failed')).toBe(0);
  });

  it('a handler that does not come back within its time is dropped and gives its place back', async () => {
    let aborted = false;
    const handler: JobTargetOptions['handler'] = (job, { signal }) => {
      signal.addEventListener('abort', () => void (aborted = true));
      return job.payload === 'hang' ? new Promise(() => undefined) : Promise.resolve();
    };
    const a = await pod({ workers: 'on', lossy: { concurrency: 1 } }, [{ ...target(handler), timeout_ms: 50 }]);
    await a.sideEffect.enqueue(T, 'hang');
    await a.sideEffect.enqueue(T, 'fine');
    await waitFor('both ended', () => a.eventsOf('run_ended').length === 2);
    expect(a.eventsOf('run_ended').map((event) => event.result)).toEqual(['dropped', 'success']);
    expect(aborted).toBe(true);
  });

  it.each(['off', 'manual'] as const)(
    'with workers %s it is handed over, and no processor takes it',
    async (workers) => {
      const a = await pod({ workers });
      await a.sideEffect.enqueue(T, 1);
      await expect(waitFor('it is taken', async () => (await waiting()) === 0, 500)).rejects.toThrow('not within');
      const clients = String(await redis.client('LIST'));
      expect(clients).not.toMatch(/cmd=brpoplpush/);
      expect(clients.match(/name=sidelane-lossy/g)).toHaveLength(1);
      expect(await waiting()).toBe(1);
    },
  );

  it('what a pod does not know, or cannot read, is dropped and counted', async () => {
    const a = await pod({ workers: 'manual' }, [{ ...target(), name: 'other:thing' }]);
    await a.sideEffect.enqueue('other:thing', 1);
    await a.close();
    const add = async (id: string, entry: unknown): Promise<void> => {
      await redis.hset(`bull:side_effect_lossy:${id}`, {
        name: '__default__',
        data: JSON.stringify(entry),
        opts: '{"attempts":1,"removeOnFail":true,"removeOnComplete":true}',
        timestamp: 1,
        delay: 0,
        priority: 0,
      });
      await redis.lpush('bull:side_effect_lossy:wait', id);
    };
    await add('1', { some: 'thing' });
    await add('aaaaaaaaaaaaaaaaaaaaaaaa', { target: T, code: 5 });
    const b = await pod({ workers: 'on' });
    await waitFor('all are counted', () => b.eventsOf('lossy_dropped').length === 3);
    expect(new Set(b.eventsOf('lossy_dropped').map((event) => `${event.target} ${event.reason}`))).toEqual(
      new Set(['other:thing unknown_target', 'unknown malformed', `${T} malformed`]),
    );
  });

  it('without a lossy target no connection is opened, whatever the environment says', async () => {
    await pod({ workers: 'manual' }, [durable]);
    expect(String(await redis.client('LIST'))).not.toContain('sidelane-lossy');
  });

  it('a lossy target without a Redis fails the boot, saying what to set', async () => {
    await expect(db.pod({ redis: { url: '' } }, [target()])).rejects.toMatchObject({
      code: 'lossy_without_redis',
      field: 'jobs.redis.url',
    });
  });

  it.each([
    { delivery_mode: 'at_least_once' as const },
    { max_attempts: 3 },
    { keep_dead_ms: 1000 },
    { exclusive: true, lane: 'long' as const },
    { on_dead: async () => undefined },
  ])('a promise that a lossy target cannot keep (%j) is refused', async (options) => {
    await expect(pod({}, [{ ...target(), ...options }])).rejects.toMatchObject({ code: 'invalid_target' });
  });

  it('a shutdown lets the running one end, takes no other, and still hands over what comes meanwhile', async () => {
    let release = (): void => undefined;
    const gate = new Promise<void>((resolve) => void (release = resolve));
    let begun = 0;
    const handler = async (): Promise<void> => {
      begun++;
      await gate;
    };
    const a = await pod({ workers: 'on', lossy: { concurrency: 2 } }, [target(handler)]);
    await a.sideEffect.enqueue(T, 1);
    const takes = async (): Promise<boolean> => /cmd=brpoplpush/.test(String(await redis.client('LIST')));
    await waitFor('it runs, and the other place waits for work', async () => begun === 1 && (await takes()));
    let stopped = false;
    const stop = a.module
      .get(LossyProcessor)
      .stop(60_000)
      .finally(() => (stopped = true));
    await waitFor('nothing is taken any more', async () => !(await takes()), 300);
    expect(stopped).toBe(false);
    const closed = a.close();
    await a.sideEffect.enqueue(T, 2);
    release();
    expect(await stop).toBe(true);
    await closed;
    expect(a.eventsOf('run_ended').map((event) => event.result)).toEqual(['success']);
    expect(begun).toBe(1);
    expect(await waiting()).toBe(1);
    await waitFor('every connection is closed', async () => !/bull|sidelane/.test(String(await redis.client('LIST'))));
    const before = a.eventsOf('lossy_dropped').length;
    await a.sideEffect.enqueue(T, 3).catch(() => undefined);
    expect(a.eventsOf('lossy_dropped').slice(before)).toMatchObject([{ reason: 'stopped' }]);
  });

  it('a handler that outlives the grace is told to give up, and the shutdown goes on', async () => {
    let told: unknown;
    let begun = false;
    const handler: JobTargetOptions['handler'] = (_job, { signal }) => {
      begun = true;
      signal.addEventListener('abort', () => void (told = signal.reason));
      return new Promise(() => undefined);
    };
    const a = await pod({ workers: 'on', shutdown_grace_ms: 50 }, [target(handler)]);
    await a.sideEffect.enqueue(T, 1);
    await waitFor('it runs', () => begun);
    const started = performance.now();
    await a.close();
    expect(performance.now() - started).toBeLessThan(4_000);
    expect(told).toMatchObject({ why: 'shutdown' });
  });
});
