import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { partitionOf } from '../../src/jobs/policy/partition.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected, TargetOutcomeUnknown, TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const MINUTE = 60_000;
const T = 'test:send';

/** A target that records what it was given and fails as told. */
class Recorder {
  readonly seen: Job[] = [];
  fail: (job: Job) => unknown = () => undefined;

  get order(): string[] {
    return this.seen.map((job) => `${job.key}:${job.version}`);
  }

  target(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    return { name: T, lane: 'fast', handler: (job) => this.run(job), ...options };
  }

  batchTarget(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    const batch_handler = async (jobs: readonly Job[]): Promise<void> => {
      for (const job of jobs) {
        const error = this.fail(job);
        if (error) throw error;
      }
      this.seen.push(...jobs);
    };
    return { name: T, lane: 'fast', delivery_mode: 'at_least_once', batch_handler, ...options };
  }

  private async run(job: Job): Promise<void> {
    this.seen.push(job);
    const error = this.fail(job);
    if (error) throw error;
  }
}

// Hints are hints (invariant 12): with every one of them dropped, all of this holds as well.
describe.each(['on', 'off'] as const)('fast lane, hints %s', (hints) => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function owner(target: JobTargetOptions, clock = new FakeClock(), partitions = 1): Promise<TestPod> {
    const pod = await db.pod({ partitions, hints }, [target], clock);
    await pod.leases.heartbeat();
    return pod;
  }

  const rows = (
    count: number,
    keys: number,
    extra: object = {},
  ): { target: string; payload: number; key: string; version: number }[] =>
    Array.from({ length: count }, (_, index) => ({
      target: T,
      payload: index,
      key: `k${index % keys}`,
      version: Math.floor(index / keys),
      ...extra,
    }));

  it('a row that succeeded is deleted', async () => {
    const recorder = new Recorder();
    const pod = await owner(recorder.target());
    await pod.sideEffect.enqueue(T, { a: 1 }, { key: 'k', headers: { h: 'v' } });
    await pod.drain();
    expect(recorder.seen).toMatchObject([{ payload: { a: 1 }, key: 'k', headers: { h: 'v' }, attempts: 0 }]);
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('rows of one key run in version order, whatever the order of their enqueue', async () => {
    const recorder = new Recorder();
    const pod = await owner(recorder.target());
    for (const version of [3, 1, 2]) await pod.sideEffect.enqueue(T, version, { key: 'k', version });
    await pod.drain();
    expect(recorder.order).toEqual(['k:1', 'k:2', 'k:3']);
  });

  it('250 rows run in three batches of a walk, each key in order', async () => {
    const recorder = new Recorder();
    const pod = await owner(recorder.batchTarget());
    await pod.sideEffect.enqueueMany(rows(250, 7));
    await pod.drain();
    expect(recorder.seen).toHaveLength(250);
    for (let key = 0; key < 7; key++) {
      const versions = recorder.seen.filter((job) => job.key === `k${key}`).map((job) => job.version);
      expect(versions).toEqual([...versions].sort((a, b) => a - b));
    }
  });

  it('an answered failure backs off 1, 2, 4, 8, 16 min, and the 6th is DEAD with closed_at', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder();
    recorder.fail = () => new Error('no');
    const pod = await owner(recorder.target(), clock);
    await pod.sideEffect.enqueue(T, 1, { key: 'k' });
    const waits: number[] = [];
    for (let attempt = 1; attempt <= 6; attempt++) {
      await pod.leases.heartbeat();
      await pod.drain();
      const row = (await pod.jobs.findOne({}))!;
      expect(row.attempts).toBe(attempt);
      if (row.status === 'DEAD') {
        expect(row).toMatchObject({ attempts: 6, closed_at: clock.now(), last_error: 'no' });
        break;
      }
      const wait = row.next_run_at.getTime() - clock.now().getTime();
      waits.push(wait / MINUTE);
      for (let passed = 0; passed < wait; passed += 10_000) {
        clock.advance(Math.min(10_000, wait - passed));
        await pod.leases.heartbeat();
      }
    }
    expect(waits).toEqual([1, 2, 4, 8, 16]);
    expect(recorder.seen).toHaveLength(6);
    expect(pod.eventsOf('dead')).toHaveLength(1);
    expect((await pod.jobs.findOne({}))!.history).toHaveLength(6);
  });

  it('a row that waits for its retry holds every later version of its key, not other keys; a DEAD row holds nothing', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder();
    recorder.fail = (job) => (job.key === 'a' && job.version === 1 ? new Error('no') : undefined);
    const pod = await owner(recorder.target({ max_attempts: 2 }), clock);
    for (const key of ['a', 'b'])
      for (const version of [1, 2, 3]) await pod.sideEffect.enqueue(T, version, { key, version });
    await pod.drain();
    expect(recorder.order).toEqual(['a:1', 'b:1', 'b:2', 'b:3']);
    await pod.sideEffect.enqueue(T, 4, { key: 'a', version: 4 });
    await pod.drain();
    expect(recorder.order).toEqual(['a:1', 'b:1', 'b:2', 'b:3']);
    for (let step = 0; step < 6; step++) {
      clock.advance(10_000);
      await pod.leases.heartbeat();
    }
    await pod.drain();
    expect(recorder.order.slice(4)).toEqual(['a:1', 'a:2', 'a:3', 'a:4']);
    expect(await pod.jobs.countDocuments({ status: 'DEAD' })).toBe(1);
  });

  it('behind a failed row of its batch nothing of the key starts, other keys do', async () => {
    const recorder = new Recorder();
    recorder.fail = (job) => (job.key === 'k0' && job.version === 0 ? new Error('no') : undefined);
    const pod = await owner(recorder.target({ delivery_mode: 'at_least_once' }));
    await pod.sideEffect.enqueueMany(rows(4, 2));
    await pod.drain();
    expect(recorder.order.filter((name) => name.startsWith('k0'))).toEqual(['k0:0']);
    expect(recorder.order.filter((name) => name.startsWith('k1'))).toEqual(['k1:0', 'k1:1']);
  });

  it('a row of a batch whose turn comes when the lease is too short does not start, and is not taken for sent', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder();
    recorder.fail = () => clock.advance(14_500); // 30 s lease, 15 s longest send, 1 s margin: too late for the next
    const pod = await owner(recorder.target({ delivery_mode: 'at_least_once' }), clock);
    await pod.sideEffect.enqueueMany(rows(2, 1));
    await pod.lane.runOnce();
    expect(recorder.order).toEqual(['k0:0']);
    expect(await pod.jobs.find({}).toArray()).toMatchObject([{ version: 1, status: 'PENDING', attempts: 0 }]);
    const [partition] = await pod.collections.partitions.find({}).toArray();
    expect((await pod.jobs.findOne({}))!.outcome_token).toBe(partition!.inflight[0]!.token);
  });

  it('held followers leave the probe: a second check finds nothing due', async () => {
    const recorder = new Recorder();
    recorder.fail = () => new Error('no');
    const pod = await owner(recorder.target());
    await pod.sideEffect.enqueueMany(rows(300, 1));
    await pod.drain();
    expect(recorder.seen).toHaveLength(1);
    expect(await pod.jobs.countDocuments({ next_run_at: { $lte: pod.now() } })).toBe(0);
    expect(await pod.commandsOf(() => pod.lane.runOnce())).toEqual(['find']);
  });

  it('an unreachable target pauses and spends no attempt; one probe goes through every 30 s; other targets go on', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder();
    recorder.fail = () => new TargetUnreachable('connection refused');
    const pod = await db.pod(
      { partitions: 1, hints },
      [recorder.target(), { name: 'other', lane: 'fast', handler: async () => undefined }],
      clock,
    );
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueueMany(rows(5, 5));
    await pod.sideEffect.enqueue('other', 1);
    await pod.drain();
    expect(recorder.seen).toHaveLength(1);
    expect(await pod.jobs.countDocuments({ target: 'other' })).toBe(0);
    for (let probe = 2; probe <= 5; probe++) {
      for (let step = 0; step < 3; step++) {
        clock.advance(10_000);
        await pod.leases.heartbeat();
        await pod.lane.runOnce();
        await pod.lane.runOnce();
      }
      expect(recorder.seen).toHaveLength(probe);
    }
    expect(await pod.jobs.countDocuments({ attempts: 0, status: 'PENDING' })).toBe(5);
    recorder.fail = () => undefined;
    clock.advance(30_000 - 20_000);
    await pod.leases.heartbeat();
    clock.advance(10_000);
    await pod.leases.heartbeat();
    clock.advance(10_000);
    await pod.leases.heartbeat();
    await pod.drain();
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('an at-most-once row whose end is unknown is DEAD at once and never runs again', async () => {
    const recorder = new Recorder();
    recorder.fail = () => new TargetOutcomeUnknown('no answer');
    const pod = await owner(recorder.target());
    await pod.sideEffect.enqueue(T, 1, { key: 'k' });
    await pod.drain();
    expect(await pod.jobs.findOne({})).toMatchObject({ status: 'DEAD', attempts: 0, last_error: 'no answer' });
    expect(pod.eventsOf('target_paused')).toHaveLength(1);
  });

  it('a timed-out answer of a target that is up makes an at-most-once row DEAD without a pause', async () => {
    const recorder = new Recorder();
    recorder.fail = () => new TargetOutcomeUnknown('REQUEST_TIMED_OUT', { target_up: true });
    const pod = await owner(recorder.target());
    await pod.sideEffect.enqueue(T, 1);
    await pod.drain();
    expect(await pod.jobs.countDocuments({ status: 'DEAD' })).toBe(1);
    expect(pod.eventsOf('target_paused')).toHaveLength(0);
  });

  it('an at-least-once row whose end is unknown keeps its attempts and pauses the target', async () => {
    const recorder = new Recorder();
    recorder.fail = () => new TargetOutcomeUnknown('no answer', { target_up: true });
    const pod = await owner(recorder.target({ delivery_mode: 'at_least_once' }));
    await pod.sideEffect.enqueue(T, 1);
    await pod.drain();
    expect(await pod.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 0 });
    expect(pod.eventsOf('target_paused')).toHaveLength(1);
  });

  it('a record that can never be sent is DEAD at once, whatever the mode, and its followers run', async () => {
    const recorder = new Recorder();
    recorder.fail = (job) => (job.version === 1 ? new JobRejected('not-sent, invalid record') : undefined);
    const pod = await owner(recorder.target({ delivery_mode: 'at_least_once' }));
    for (const version of [1, 2]) await pod.sideEffect.enqueue(T, version, { key: 'k', version });
    await pod.drain();
    expect(recorder.order).toEqual(['k:1', 'k:2']);
    expect(await pod.jobs.find({}).toArray()).toMatchObject([{ status: 'DEAD', version: 1 }]);
  });

  it('a handler that never settles gives its slot back after its time', async () => {
    const clock = new FakeClock();
    let begun = (): void => undefined;
    const started = new Promise<void>((resolve) => void (begun = resolve));
    let aborted = false;
    const handler: JobTargetOptions['handler'] = (_job, { signal }) => {
      signal.addEventListener('abort', () => void (aborted = true));
      begun();
      return new Promise(() => undefined);
    };
    const pod = await owner({ name: T, lane: 'fast', handler }, clock);
    await pod.sideEffect.enqueue(T, 1);
    const round = pod.lane.runOnce();
    await started;
    clock.advance(15_000);
    await round;
    expect(aborted).toBe(true);
    expect(await pod.jobs.findOne({})).toMatchObject({ status: 'DEAD', last_error: 'no answer within 15000 ms' });
  });

  it('one bad record in a batch is charged alone', async () => {
    const recorder = new Recorder();
    recorder.fail = (job) => (job.payload === 3 ? new Error('message too large') : undefined);
    const pod = await owner(recorder.batchTarget());
    await pod.sideEffect.enqueueMany(rows(6, 6));
    await pod.drain();
    expect(recorder.seen.map((job) => Number(job.payload)).sort((a, b) => a - b)).toEqual([0, 1, 2, 4, 5]);
    expect(await pod.jobs.find({}).toArray()).toMatchObject([{ payload: 3, attempts: 1, status: 'PENDING' }]);
  });

  it('a postponed row starts no earlier than asked', async () => {
    const clock = new FakeClock();
    const recorder = new Recorder();
    const pod = await owner(recorder.target(), clock);
    await pod.sideEffect.enqueue(T, 1, { delay_ms: 5_000 });
    await pod.drain();
    expect(recorder.seen).toHaveLength(0);
    clock.advance(5_000);
    await pod.drain();
    expect(recorder.seen).toHaveLength(1);
  });

  it('a walk costs 3 commands per 100 at-least-once rows: read, mark, delete', async () => {
    const pod = await owner(new Recorder().batchTarget());
    await pod.sideEffect.enqueueMany(rows(300, 300));
    await pod.lane.runOnce(); // cold check and the full probe that begins the walk
    expect(await pod.commandsOf(() => pod.lane.runOnce())).toEqual(['find', 'update', 'delete']);
  });

  it('a light round costs 4 commands: probe, read, mark, delete', async () => {
    const pod = await owner(new Recorder().batchTarget());
    await pod.sideEffect.enqueueMany(rows(99, 99));
    const round = ['find', 'find', 'update', 'delete'];
    // The hint makes the cell hot: what it saves is the cold check.
    expect(await pod.commandsOf(() => pod.lane.runOnce())).toEqual(hints === 'on' ? round : ['find', ...round]);
  });

  it('errors that a batch handler answers after a shutdown called it off are no answers: at most once they are unknown', async () => {
    const clock = new FakeClock();
    let begun = (): void => undefined;
    const began = new Promise<void>((resolve) => (begun = resolve));
    const batch_handler: JobTargetOptions['batch_handler'] = (jobs, { signal }) => {
      begun();
      return new Promise((resolve) => {
        signal.addEventListener('abort', () => resolve(jobs.map(() => new Error('stopped'))));
      });
    };
    const pod = await owner({ name: T, lane: 'fast', batch_handler, max_in_flight: 10 }, clock);
    await pod.sideEffect.enqueueMany(rows(2, 2));
    const round = pod.lane.runOnce();
    await began;
    const stopped = pod.lane.stop(1_000);
    await clock.armed(1_000);
    clock.advance(1_000);
    await round;
    await stopped;
    expect(await pod.jobs.countDocuments({ status: 'DEAD', attempts: 0 })).toBe(2);
  });

  it('one check finds every cell that has work, however deep the backlog of the first', async () => {
    const recorder = new Recorder();
    const pod = await db.pod({ partitions: 4, hints: 'off', fast_lane: { cold_check_limit: 10 } }, [recorder.target()]);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueueMany(rows(60, 60));
    const { partition } = (await pod.jobs.findOne({}, { sort: { partition: 1 } }))!;
    await pod.sideEffect.enqueueMany(
      Array.from({ length: 400 }, (_, index) => ({ target: T, payload: index, key: `d${index}` })),
    );
    await pod.jobs.updateMany({ key: /^d/ }, { $set: { partition } });
    await pod.lane.runOnce();
    const cells = new Set(recorder.seen.map((job) => partitionOf(job.key!, 4)));
    expect(cells.size).toBe(4);
  });

  it('an at-most-once row with one in flight costs at most 3 commands', async () => {
    const pod = await owner(new Recorder().target());
    await pod.sideEffect.enqueueMany(rows(50, 50));
    const commands = await pod.commandsOf(() => pod.drain());
    expect(commands.length).toBeLessThanOrEqual(3 * 50);
    expect(commands.filter((name) => name === 'update')).toHaveLength(50);
  });

  it('an idle pod sends under one command a second', async () => {
    const pod = await owner(new Recorder().target(), new FakeClock(), 64);
    const heartbeat = await pod.commandsOf(() => pod.leases.heartbeat());
    const check = await pod.commandsOf(() => pod.lane.runOnce());
    // A minute of idling: 6 heartbeats, each with the clock's hello, and a check every 5 s.
    expect(6 * (heartbeat.length + 1) + 12 * check.length).toBeLessThan(60);
  });
});
