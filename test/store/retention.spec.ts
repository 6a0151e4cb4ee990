/** Retention: what expires, what never does, and that deleting it disturbs nothing. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { mongo } from 'mongoose';
import { DatabaseClock } from '../../src/common/ports/clock.js';
import { JobsEvents } from '../../src/jobs/jobs.events.js';
import { RETENTION_SLICE, RetentionWorker } from '../../src/jobs/lanes/retention.worker.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import * as store from '../../src/jobs/store/retention.store.js';
import { reviveDead } from '../../src/jobs/store/admin_change.store.js';
import { reviveSlice } from '../../src/jobs/store/admin_bulk.store.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { waitFor } from '../support/wait_for.js';

const db = new TestDatabase();
const DAY = 24 * 3_600_000;
const KEEP = { keep_done_ms: DAY, keep_dead_ms: 2 * DAY };

const target = (name: string, more: Partial<JobTargetOptions> = {}): JobTargetOptions => ({
  name,
  lane: 'fast',
  handler: async () => undefined,
  ...more,
});
const failing = (name: string, more: Partial<JobTargetOptions> = {}): JobTargetOptions =>
  target(name, {
    handler: async () => Promise.reject(Object.assign(new Error('no'), { dead_now: true })),
    ...more,
  });

const retentionOf = (pod: TestPod): RetentionWorker => pod.module.get(RetentionWorker);

/** A finished row, as an outcome leaves it. */
function finished(n: number, expire_at: Date | undefined, status: 'DONE' | 'DEAD' = 'DONE'): JobDoc {
  const at = new Date(0);
  return {
    _id: new mongo.ObjectId(),
    code: 'kept',
    target: 'test:kept',
    lane: n % 2 === 0 ? 'fast' : 'long',
    order_key: `old${n}`,
    partition: n % 4,
    version: 0,
    payload: null,
    dedupe_key: `old${n}`,
    status,
    attempts: 0,
    crashes: 0,
    priority: 2,
    run_at: at,
    next_run_at: at,
    closed_at: at,
    ...(expire_at && { expire_at }),
    bytes: 300,
    created_at: at,
    updated_at: at,
  };
}

describe('retention', () => {
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  it('is off by default: success deletes, a DEAD row has no end, and a pass removes nothing ever', async () => {
    const clock = new FakeClock();
    const pod = await db.pod(
      {},
      [target('test:ok'), failing('test:bad'), failing('test:bad_long', { lane: 'long' })],
      clock,
    );
    for (const name of ['test:ok', 'test:bad', 'test:bad_long']) await pod.sideEffect.enqueue(name, 1);
    await pod.leases.heartbeat();
    await pod.drain();
    clock.advance(3_650 * DAY);
    expect(await retentionOf(pod).runOnce()).toBe(0);
    const left = await pod.jobs.find().toArray();
    expect(left.map((row) => row.status)).toEqual(['DEAD', 'DEAD']);
    for (const row of left) expect(row).not.toHaveProperty('expire_at');
  });

  it.each(['fast', 'long'] as const)(
    'keeps finished rows of the %s lane for as long as their target says, then deletes them',
    async (lane) => {
      const clock = new FakeClock();
      const pod = await db.pod(
        {},
        [target('test:ok', { lane, ...KEEP }), failing('test:bad', { lane, ...KEEP })],
        clock,
      );
      for (const name of ['test:ok', 'test:bad']) await pod.sideEffect.enqueue(name, 1);
      await pod.leases.heartbeat();
      await pod.drain();
      const statuses = async (): Promise<string[]> => (await pod.jobs.find().toArray()).map((row) => row.status).sort();
      clock.advance(DAY - 1);
      expect(await retentionOf(pod).runOnce()).toBe(0);
      expect(await statuses()).toEqual(['DEAD', 'DONE']);
      clock.advance(1);
      expect(await retentionOf(pod).runOnce()).toBe(1);
      expect(await statuses()).toEqual(['DEAD']);
      clock.advance(DAY);
      expect(await retentionOf(pod).runOnce()).toBe(1);
      expect(await statuses()).toEqual([]);
    },
  );

  it('a DONE row keeps rejecting its dedupe_key; once it expired and a pass went by, the key is free', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [target('test:ok', KEEP)], clock);
    const enqueue = () => pod.sideEffect.enqueue('test:ok', 1, { dedupe_key: 'order-1' });
    await pod.leases.heartbeat();
    expect(await enqueue()).toMatchObject({ inserted: true });
    await pod.drain();
    clock.advance(DAY - 1);
    await retentionOf(pod).runOnce();
    expect(await enqueue()).toMatchObject({ inserted: false });
    clock.advance(1);
    await retentionOf(pod).runOnce();
    expect(await enqueue()).toMatchObject({ inserted: true });
  });

  it('a DEAD row that an admin retries, alone or with many, has no end any more', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [failing('test:bad', KEEP)], clock);
    for (const key of ['a', 'b']) await pod.sideEffect.enqueue('test:bad', 1, { dedupe_key: key });
    await pod.leases.heartbeat();
    await pod.drain();
    const [one, other] = await pod.jobs.find().toArray();
    await pod.connection.transaction(async (session) => {
      await reviveDead(session, pod.collections, one!._id, clock.now());
      await reviveSlice(session, pod.collections, [other!._id], clock.now());
    });
    for (const row of await pod.jobs.find().toArray()) {
      expect(row).toMatchObject({ status: 'PENDING' });
      expect(row).not.toHaveProperty('expire_at');
    }
    clock.advance(10 * DAY);
    expect(await retentionOf(pod).runOnce()).toBe(0);
  });

  it('never deletes what was retried between the look and the delete', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [failing('test:bad', KEEP)], clock);
    for (const key of ['a', 'b']) await pod.sideEffect.enqueue('test:bad', 1, { dedupe_key: key });
    await pod.leases.heartbeat();
    await pod.drain();
    clock.advance(2 * DAY);
    const ids = await store.findExpired(pod.collections, clock.now(), RETENTION_SLICE);
    expect(ids).toHaveLength(2);
    await pod.connection.transaction((session) => reviveDead(session, pod.collections, ids[0]!, clock.now()));
    expect(await store.deleteExpired(pod.collections, ids, clock.now())).toBe(1);
    expect(await pod.jobs.find().toArray()).toMatchObject([{ _id: ids[0], status: 'PENDING' }]);
  });

  it('never deletes what died again meanwhile, with a new end, nor a waiting row that carries an end by mistake', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [], clock);
    const past = new Date(clock.now().getTime() - 1);
    const row = finished(1, past, 'DEAD');
    const waiting = { ...finished(2, past), status: 'PENDING' as const };
    await pod.jobs.insertMany([row, waiting]);
    const ids = await store.findExpired(pod.collections, clock.now(), RETENTION_SLICE);
    expect(ids).toEqual([row._id]);
    await pod.jobs.updateOne({ _id: row._id }, { $set: { expire_at: new Date(clock.now().getTime() + DAY) } });
    expect(await store.deleteExpired(pod.collections, [row._id, waiting._id], clock.now())).toBe(0);
    expect(await pod.jobs.countDocuments()).toBe(2);
  });

  it('idle it sends one query per pass, answered from its index however many rows there are', async () => {
    const pod = await db.pod();
    expect(await pod.commandsOf(() => retentionOf(pod).runOnce())).toEqual(['find']);
    const plan = JSON.stringify(
      await pod.jobs
        .find({ expire_at: { $exists: true, $lte: pod.now() }, status: { $in: ['DONE', 'DEAD'] } })
        .sort({ expire_at: 1 })
        .hint('expiry')
        .limit(RETENTION_SLICE)
        .explain(),
    );
    expect(plan).toContain('expiry');
    expect(plan).not.toContain('COLLSCAN');
  });

  it('looks once a minute, and not at once: pods that boot together do not look together', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [], clock);
    const past = new Date(clock.now().getTime() - 1);
    const retention = new RetentionWorker(pod.collections, clock, () => 0.5, pod.module.get(JobsEvents));
    await pod.jobs.insertOne(finished(1, past));
    retention.start();
    await clock.armed(30_000);
    expect(await pod.jobs.countDocuments()).toBe(1);
    clock.advance(30_000);
    await clock.armed(60_000);
    expect(await pod.jobs.countDocuments()).toBe(0);
    await retention.stop();
  });

  it('stops between two slices, and a pass after the stop does nothing', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({}, [], clock);
    const past = new Date(clock.now().getTime() - 1);
    await pod.jobs.insertMany(Array.from({ length: 3 * RETENTION_SLICE }, (_, n) => finished(n, past)));
    const retention = retentionOf(pod);
    const pass = retention.runOnce();
    await retention.stop(); // during the first look
    expect(await pass).toBe(RETENTION_SLICE);
    expect(await retention.runOnce()).toBe(0);
    expect(await pod.jobs.countDocuments()).toBe(2 * RETENTION_SLICE);
  });

  it('two pods at once delete each row once, and a TTL monitor beside them harms nothing', async () => {
    const clock = new FakeClock();
    const pods = [await db.pod({}, [], clock), await db.pod({}, [], clock)];
    const past = new Date(clock.now().getTime() - 1);
    const rows = 2_000;
    await pods[0]!.jobs.insertMany(Array.from({ length: rows }, (_, n) => finished(n, past)));
    const monitor = pods[0]!.jobs.deleteMany({ expire_at: { $lte: past }, partition: 3 });
    const deleted = await Promise.all(pods.map((pod) => retentionOf(pod).runOnce()));
    expect(deleted[0]! + deleted[1]! + (await monitor).deletedCount).toBe(rows);
    expect(await pods[0]!.jobs.countDocuments()).toBe(0);
  });

  it('deletes thousands of rows in slices while 500 rows a second flow through both lanes, in order, none lost or doubled', async () => {
    const clock = new DatabaseClock(async () => new Date());
    const runs = new Map<string, number[]>();
    const note = async (job: { target: string; key?: string; version: number }): Promise<void> => {
      const of = `${job.target} ${job.key}`;
      runs.set(of, [...(runs.get(of) ?? []), job.version]);
    };
    const options = {
      workers: 'on',
      long_lane: { slots: 50, idle_poll_ms: [50] },
      fast_lane: { idle_poll_ms: [50] },
    } as const;
    const again = { delivery_mode: 'at_least_once' } as const;
    const flows = [
      target('flow:fast', { ...again, handler: note }),
      target('flow:long', { ...again, lane: 'long', concurrency: 50, handler: note }),
    ];
    const pod = await db.pod(options, flows, clock);
    const [past, future] = [-1_000, DAY].map((ms) => new Date(clock.now().getTime() + ms));
    const kept = 300;
    const expired = 4_000;
    await pod.jobs.insertMany([
      ...Array.from({ length: expired }, (_, n) => finished(n, past, n % 3 === 0 ? 'DEAD' : 'DONE')),
      ...Array.from({ length: kept }, (_, n) => finished(expired + n, future)),
    ]);
    const batches = 40;
    const items = (batch: number) =>
      Array.from({ length: 50 }, (_, n) => ({
        target: n % 2 === 0 ? 'flow:fast' : 'flow:long',
        payload: n,
        key: `key${n % 10}`,
        version: batch * 50 + n,
      }));
    const flow = (async () => {
      for (let batch = 0; batch < batches; batch++) {
        const next = new Promise((resolve) => setTimeout(resolve, 100));
        await pod.sideEffect.enqueueMany(items(batch));
        await next;
      }
    })();
    await waitFor('rows that flow', () => runs.size > 0);
    expect(await retentionOf(pod).runOnce()).toBe(expired);
    await flow;
    await waitFor('every row run', async () => (await pod.jobs.countDocuments({ status: 'PENDING' })) === 0, 20_000);
    await waitFor('every outcome written', async () => (await pod.jobs.countDocuments()) === kept, 20_000);
    const versions = [...runs.values()];
    expect(versions.flat()).toHaveLength(batches * 50);
    for (const [of, seen] of runs) {
      expect(new Set(seen).size).toBe(seen.length);
      if (of.startsWith('flow:fast')) expect(seen).toEqual([...seen].sort((a, b) => a - b));
    }
    expect(pod.eventsOf('outcome_lost')).toEqual([]);
    expect(pod.eventsOf('claim_lost')).toEqual([]);
  }, 60_000);
});
