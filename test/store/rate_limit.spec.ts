/** Rate limits on a real database: one pipeline, both lanes, several pods. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import type { Job } from '../../src/jobs/jobs.types.js';
import { takeSlots, type RateWindow, type TakenSlots } from '../../src/jobs/policy/rate_limit.js';
import { takeRateSlots } from '../../src/jobs/store/rate_limit.store.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const MINUTE = 60_000;
const SECOND = 1_000;

/** Starts with their time. The rate key is the payload. */
class Recorder {
  readonly starts: { at: number; key: string; payload: string }[] = [];
  fail: (job: Job) => unknown = () => undefined;

  constructor(readonly clock: FakeClock) {}

  target(limit: number, window_ms: number, options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    const rate_limit = { key: (job: Job) => job.payload as string, limit, window_ms };
    return { name: T, lane: 'fast', rate_limit, handler: (job) => this.run(job), ...options };
  }

  async run(job: Job): Promise<void> {
    this.starts.push({ at: this.clock.now().getTime(), key: job.key ?? '', payload: job.payload as string });
    const error = this.fail(job);
    if (error) throw error;
  }

  get keys(): string[] {
    return this.starts.map((start) => start.key);
  }
}

describe('rate limits', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function owner(target: JobTargetOptions, clock: FakeClock): Promise<TestPod> {
    const pod = await db.pod({ partitions: 1 }, [target], clock);
    await pod.leases.heartbeat();
    return pod;
  }

  /** Time goes on, a heartbeat at least every 10 s, and everything due runs. */
  async function pass(ms: number, clock: FakeClock, ...pods: TestPod[]): Promise<void> {
    for (let left = ms; left > 0; left -= 10 * SECOND) {
      clock.advance(Math.min(left, 10 * SECOND));
      await Promise.all(pods.map((pod) => pod.leases.heartbeat()));
    }
    await Promise.all(pods.map((pod) => pod.drain()));
  }

  const enqueue = (pod: TestPod, key: string, payload: string, version = 0): Promise<unknown> =>
    pod.sideEffect.enqueue(T, payload, { key, version });

  describe('the slots', () => {
    it('the pipeline and the rule agree, whatever is asked', async () => {
      const clock = new FakeClock();
      const { collections } = await owner(new Recorder(clock).target(1, 1), clock);
      const window = { limit: 5, window_ms: 100 };
      let taken: readonly TakenSlots[] = [];
      for (let ask = 0; ask < 60; ask++) {
        clock.advance((ask * 7) % 40);
        const now = new Date(clock.now().getTime() - ((ask * 13) % 30)); // clocks that are behind
        const want = 1 + (ask % 4);
        const answer = await takeRateSlots(collections, { target: T, key: 'k', window, now, want });
        expect(answer).toEqual(takeSlots(taken, window, now, want));
        expect((await collections.rateLimits.findOne({}))?.slots).toEqual(answer.taken);
        taken = answer.taken;
      }
    });

    it('of 60 asks at once, on a key nobody had, exactly the limit is granted', async () => {
      const clock = new FakeClock();
      const { collections } = await owner(new Recorder(clock).target(1, 1), clock);
      const other = await db.pod({ partitions: 1 }, [], clock);
      const window: RateWindow = { limit: 25, window_ms: SECOND };
      const ask = { target: T, key: 'new', window, now: clock.now(), want: 1 };
      const answers = await Promise.all(
        Array.from({ length: 60 }, (_, n) => takeRateSlots(n % 2 ? collections : other.collections, ask)),
      );
      expect(answers.reduce((sum, { granted }) => sum + granted, 0)).toBe(25);
    });

    it('two pods that are the first together count on from each other', async () => {
      const clock = new FakeClock();
      const { collections } = await owner(new Recorder(clock).target(1, 1), clock);
      const { rateLimits } = collections;
      const ask = { target: T, key: 'k', window: { limit: 2, window_ms: SECOND }, now: clock.now(), want: 1 };
      const insertOne = rateLimits.insertOne.bind(rateLimits);
      rateLimits.insertOne = async (...args) => {
        rateLimits.insertOne = insertOne;
        expect(await takeRateSlots(collections, ask)).toMatchObject({ granted: 1 }); // the other one, quicker
        return insertOne(...args);
      };
      expect(await takeRateSlots(collections, ask)).toMatchObject({ granted: 1 });
      expect(await takeRateSlots(collections, ask)).toMatchObject({ granted: 0 });
    });

    it('a document that is gone whenever it is asked for ends in an error', async () => {
      const clock = new FakeClock();
      const { collections } = await owner(new Recorder(clock).target(1, 1), clock);
      Object.assign(collections.rateLimits, { findOneAndUpdate: () => Promise.resolve(null) });
      const ask = { target: T, key: 'k', window: { limit: 1, window_ms: SECOND }, now: clock.now(), want: 1 };
      await expect(takeRateSlots(collections, ask)).rejects.toThrow('gone whenever it is asked for');
    });

    it('keys and targets count apart, and idle documents are left to the TTL index', async () => {
      const clock = new FakeClock();
      const { collections } = await owner(new Recorder(clock).target(1, 1), clock);
      const window = { limit: 1, window_ms: SECOND };
      const common = { window, now: clock.now(), want: 1 };
      for (const [target, key] of [
        [T, 'a'],
        [T, 'b'],
        ['t:other', 'a'],
      ] as const) {
        // prettier-ignore
        expect(await takeRateSlots(collections, { ...common, target, key })).toMatchObject({ granted: 1 });
      }
      const docs = await collections.rateLimits.find({}).toArray();
      expect(docs.map((doc) => doc.expire_at)).toEqual(
        docs.map(() => new Date(clock.now().getTime() + SECOND + MINUTE)),
      );
      expect(await collections.rateLimits.listIndexes().toArray()).toContainEqual(
        expect.objectContaining({ key: { expire_at: 1 }, expireAfterSeconds: 0 }),
      );
    });
  });

  describe('the fast lane', () => {
    it('a refused row keeps its attempts, comes due when a slot frees, and runs then', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(2, 20 * SECOND), clock);
      for (const key of ['a', 'b', 'c']) await enqueue(pod, key, 'tenant');
      const start = clock.now().getTime();
      await pod.drain();
      expect(recorder.keys).toEqual(['a', 'b']);
      expect(await pod.jobs.find({}).toArray()).toMatchObject([
        { key: 'c', status: 'PENDING', attempts: 0, crashes: 0, next_run_at: new Date(start + 20 * SECOND) },
      ]);
      expect((await pod.jobs.findOne({}))?.history).toBeUndefined();
      await pass(20 * SECOND - 1, clock, pod);
      expect(recorder.starts).toHaveLength(2);
      await pass(1, clock, pod);
      expect(recorder.keys).toEqual(['a', 'b', 'c']);
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(pod.eventsOf('target_paused')).toEqual([]);
      expect(pod.eventsOf('rate_limited')).toEqual([{ type: 'rate_limited', target: T, rows: 1 }]);
    });

    it('a refused row holds its key: followers wait behind it, whatever their own rate key; other keys go on', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, MINUTE, { delivery_mode: 'at_least_once' }), clock);
      await enqueue(pod, 'a', 'full', 1);
      await enqueue(pod, 'a', 'full', 2);
      await enqueue(pod, 'a', 'free', 3);
      await enqueue(pod, 'b', 'other', 1);
      await pod.drain();
      expect(recorder.starts.map(({ key, payload }) => `${key}:${payload}`).sort()).toEqual(['a:full', 'b:other']);
      const due = new Date(clock.now().getTime() + MINUTE);
      expect((await pod.jobs.find({}).toArray()).map((row) => row.next_run_at)).toEqual([due, due]);
      await pass(MINUTE, clock, pod);
      expect(recorder.starts.map(({ payload }) => payload).slice(2)).toEqual(['full', 'free']);
    });

    it('rows of one key, which run one after the other, take their slots one after the other', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const handler = async (job: Job): Promise<void> => {
        await recorder.run(job);
        await turn();
        if (job.key === 'a') clock.advance(5 * SECOND);
      };
      const window = 12 * SECOND;
      const pod = await owner(recorder.target(3, window, { delivery_mode: 'at_least_once', handler }), clock);
      for (const version of [1, 2, 3]) await enqueue(pod, 'a', 'tenant', version);
      for (const key of ['b', 'c', 'd']) await enqueue(pod, key, 'tenant');
      await pod.drain();
      for (let step = 0; step < 10; step++) await pass(5 * SECOND, clock, pod);
      const starts = recorder.starts.map(({ at }) => at);
      expect(starts).toHaveLength(6);
      expect(recorder.keys.slice(0, 3)).toEqual(['a', 'b', 'c']); // no slot was taken for a row that could not start yet
      for (const from of starts) {
        expect(starts.filter((at) => at >= from && at < from + window).length).toBeLessThanOrEqual(3);
      }
    });

    it('a start that others of its batch held up too long is left out', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      recorder.fail = () => clock.advance(1_001); // the loop is blocked while the first starts
      const pod = await owner(recorder.target(2, 10 * SECOND, { delivery_mode: 'at_least_once' }), clock);
      for (const key of ['a', 'b']) await enqueue(pod, key, 'tenant');
      await pod.drain();
      expect(recorder.keys).toEqual(['a']);
      expect(await pod.jobs.findOne({})).toMatchObject({ key: 'b', status: 'PENDING', attempts: 0, crashes: 0 });
      await pass(20 * SECOND, clock, pod);
      expect(recorder.keys).toEqual(['a', 'b']);
    });

    it('a batch is cut down to its slots, each rate key by itself', async () => {
      const clock = new FakeClock();
      const batches: string[][] = [];
      const batch_handler = (jobs: readonly Job[]): Promise<void> =>
        Promise.resolve(void batches.push(jobs.map((job) => `${job.payload as string}${job.version}`)));
      const { handler: _, ...target } = new Recorder(clock).target(2, MINUTE, { delivery_mode: 'at_least_once' });
      const pod = await owner({ ...target, batch_handler }, clock);
      for (const version of [1, 2, 3]) await enqueue(pod, 'a', 'x', version);
      for (const version of [1, 2, 3]) await enqueue(pod, 'b', 'y', version);
      await enqueue(pod, 'c', 'z', 1);
      await pod.drain();
      expect(batches).toEqual([['x1', 'x2', 'y1', 'y2', 'z1']]);
      await pass(MINUTE, clock, pod);
      expect(batches.slice(1)).toEqual([['x3', 'y3']]);
    });

    it('a page of one full key asks once and waits with one write', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, MINUTE), clock);
      await enqueue(pod, 'first', 'tenant');
      await pod.drain();
      const rows = Array.from({ length: 90 }, (_, row) => ({ target: T, payload: 'tenant', key: `k${row}` }));
      await pod.sideEffect.enqueueMany(rows);
      const commands = await pod.commandsOf(() => pod.lane.runOnce());
      expect(commands.filter((name) => name === 'findAndModify')).toHaveLength(1);
      expect(commands.length).toBeLessThanOrEqual(6);
      expect(await pod.jobs.countDocuments({ next_run_at: { $lte: clock.now() } })).toBe(0);
    });

    it('a refused backlog is spread over the slots: each minute brings few of its rows back', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, SECOND), clock);
      await pod.sideEffect.enqueueMany(
        Array.from({ length: 90 }, (_, row) => ({ target: T, payload: 'tenant', key: `k${row}` })),
      );
      await pod.drain();
      expect(recorder.starts).toHaveLength(1);
      expect(await pod.jobs.countDocuments({ next_run_at: { $lte: new Date(clock.now().getTime() + SECOND) } })).toBe(
        2,
      );
      for (let second = 0; second < 89; second++) await pass(SECOND, clock, pod);
      expect(recorder.starts).toHaveLength(90);
    });

    it('a rate key that cannot be used is an answered failure of its row alone', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const key = (job: Job): string => (job.payload === 'bad' ? (undefined as unknown as string) : 'k');
      const target = recorder.target(5, MINUTE, { rate_limit: { key, limit: 5, window_ms: MINUTE }, max_attempts: 2 });
      const pod = await owner(target, clock);
      await enqueue(pod, 'a', 'bad', 1);
      await enqueue(pod, 'a', 'good', 2);
      await enqueue(pod, 'b', 'good');
      await pod.drain();
      expect(recorder.keys).toEqual(['b']);
      const last_error = 'rate_limit.key: expected a string of 1 to 500 characters, got undefined';
      expect(await pod.jobs.findOne({ version: 1 })).toMatchObject({ status: 'PENDING', attempts: 1, last_error });
      await pass(2 * MINUTE, clock, pod);
      expect(await pod.jobs.findOne({ version: 1 })).toMatchObject({ status: 'DEAD', attempts: 2 });
      expect(recorder.keys).toEqual(['b', 'a']); // DEAD holds nothing
      expect(pod.eventsOf('dead')).toHaveLength(1);
    });

    it('a rate key that broke after a run: a takeover does not mistake the row for sent', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      let broken = false;
      const key = (): string => (broken ? '' : 'k');
      const target = recorder.target(5, MINUTE, { rate_limit: { key, limit: 5, window_ms: SECOND } });
      const pod = await owner(target, clock);
      recorder.fail = () => new Error('no');
      await enqueue(pod, 'a', 'tenant');
      await pod.drain();
      broken = true;
      await pass(MINUTE, clock, pod);
      expect(await pod.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 2 });
      await pod.die();
      clock.advance(31 * SECOND);
      const heir = await owner(target, clock);
      expect(heir.leases.readable()).toHaveLength(1);
      await heir.drain();
      expect(await heir.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 2, crashes: 0 });
    });

    it('a slot that grew stale starts nothing: the row waits for the next, at no charge', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, 10 * SECOND), clock);
      await enqueue(pod, 'a', 'tenant');
      const client = pod.connection.getClient();
      let slow = true;
      client.on('commandStarted', ({ commandName, command }) => {
        // The mark takes longer than a slot may wait.
        if (slow && commandName === 'update' && command['update'] === 'job_partitions') clock.advance(1_001);
      });
      await pod.drain();
      expect(recorder.starts).toEqual([]);
      slow = false;
      await pass(10 * SECOND, clock, pod);
      expect(recorder.keys).toEqual(['a']);
    });

    it('a paused target takes slots for its probes only', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(10, 10 * MINUTE), clock);
      recorder.fail = () => new TargetUnreachable('down');
      for (const key of ['a', 'b', 'c']) await enqueue(pod, key, 'tenant');
      await pod.drain();
      await pass(31 * SECOND, clock, pod);
      const taken = (await pod.collections.rateLimits.findOne({}))!.slots.reduce((sum, { n }) => sum + n, 0);
      expect(taken).toBe(recorder.starts.length);
      expect(taken).toBeLessThanOrEqual(2);
    });

    it('a probe that is refused its slot neither resumes the target nor keeps the permit', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, 2 * MINUTE), clock);
      recorder.fail = () => new TargetUnreachable('down');
      await enqueue(pod, 'a', 'tenant');
      await pod.drain();
      recorder.fail = () => undefined;
      await pass(MINUTE, clock, pod);
      expect(recorder.starts).toHaveLength(1);
      expect(pod.eventsOf('target_resumed')).toEqual([]);
      await pass(MINUTE, clock, pod);
      expect(recorder.starts).toHaveLength(2);
      expect(pod.eventsOf('target_resumed')).toHaveLength(1);
    });
  });

  it('three pods and 150 rows of three keys: no window holds more than the limit, and no slot stays empty', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder(clock);
    const target = recorder.target(5, 10 * SECOND, { delivery_mode: 'at_least_once' });
    const pods = await Promise.all([1, 2, 3].map(() => db.pod({ partitions: 12 }, [target], clock)));
    for (let beat = 0; beat < 4; beat++) for (const pod of pods) await pod.leases.heartbeat();
    const rows = Array.from({ length: 150 }, (_, row) => ({ target: T, payload: `tenant ${row % 3}`, key: `k${row}` }));
    await pods[0]!.sideEffect.enqueueMany(rows);
    await Promise.all(pods.map((pod) => pod.drain()));
    let steps = 0;
    for (; recorder.starts.length < 150 && steps < 200; steps++)
      await pass(700 + ((steps * 331) % 900), clock, ...pods);
    expect(recorder.starts).toHaveLength(150);
    expect(new Set(recorder.keys).size).toBe(150);
    for (const tenant of ['tenant 0', 'tenant 1', 'tenant 2']) {
      const starts = recorder.starts.filter(({ payload }) => payload === tenant).map(({ at }) => at);
      for (const from of starts) {
        expect(starts.filter((at) => at >= from && at < from + 10 * SECOND).length).toBeLessThanOrEqual(5);
      }
      // 50 rows at 5 per 10 s need 90 s at least; each slot may wait for the next step of this test, no longer.
      expect(Math.max(...starts) - Math.min(...starts)).toBeLessThanOrEqual(90 * SECOND * 1.3);
    }
    const ran = pods.map((pod) => pod.eventsOf('run_ended').length);
    expect(Math.min(...ran)).toBeGreaterThan(0);
    expect(await pods[0]!.jobs.countDocuments()).toBe(0);
  });

  describe('the long lane', () => {
    const long = { lane: 'long' } as const;

    it('a claimed row without a slot goes back unrun, and comes due when a slot frees', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(2, MINUTE, long), clock);
      const due = new Date(clock.now().getTime() + MINUTE);
      for (const key of ['a', 'b', 'c']) await enqueue(pod, key, 'tenant');
      await enqueue(pod, 'd', 'other');
      await pod.drain();
      expect(recorder.keys).toEqual(['a', 'b', 'd']);
      const row = (await pod.jobs.findOne({}))!;
      expect(row).toMatchObject({ key: 'c', status: 'PENDING', attempts: 0, crashes: 0, next_run_at: due });
      for (const field of ['claim_token', 'claimed_by', 'lease_until', 'started_at', 'history']) {
        expect(row).not.toHaveProperty(field);
      }
      await pass(MINUTE, clock, pod);
      expect(recorder.keys).toEqual(['a', 'b', 'd', 'c']);
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(pod.eventsOf('claim_lost')).toEqual([]);
    });

    it('a refused row of an exclusive code gives its place back', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, MINUTE, { ...long, exclusive: true }), clock);
      await enqueue(pod, 'a', 'tenant');
      await enqueue(pod, 'b', 'tenant');
      await enqueue(pod, 'c', 'other');
      await pod.drain();
      expect(recorder.keys).toEqual(['a', 'c']);
      expect(await pod.jobs.findOne({ key: 'b' })).not.toHaveProperty('running_code');
    });

    it('a rate key that cannot be used is an answered failure', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const key = (): string => {
        throw new Error('no tenant');
      };
      const pod = await owner(
        recorder.target(1, MINUTE, { ...long, rate_limit: { key, limit: 1, window_ms: 1 } }),
        clock,
      );
      await enqueue(pod, 'a', 'x');
      await pod.drain();
      expect(await pod.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 1, last_error: 'no tenant' });
      expect(recorder.starts).toEqual([]);
    });

    it('a slot that grew stale starts nothing: the row goes back at no charge', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, 10 * SECOND, long), clock);
      await enqueue(pod, 'a', 'tenant');
      let slow = true;
      pod.connection.getClient().on('commandStarted', ({ commandName }) => {
        if (slow && commandName === 'findAndModify') clock.advance(1_001);
      });
      await pod.drain();
      slow = false;
      expect(recorder.starts).toEqual([]);
      expect(await pod.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
      await pass(20 * SECOND, clock, pod);
      expect(recorder.keys).toEqual(['a']);
    });

    it('slots that cannot be asked for: the rows are given back unrun, none is left behind', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder(clock);
      const pod = await owner(recorder.target(1, MINUTE, long), clock);
      await enqueue(pod, 'a', 'tenant');
      const { rateLimits } = pod.collections;
      const ask = rateLimits.findOneAndUpdate;
      rateLimits.findOneAndUpdate = (() => Promise.reject(new Error('the database is away'))) as unknown as typeof ask;
      await expect(pod.longLane.runOnce()).rejects.toThrow('away');
      await pod.longLane.idle();
      expect(await pod.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
      rateLimits.findOneAndUpdate = ask;
      await pod.drain();
      expect(recorder.keys).toEqual(['a']);
    });
  });
});
