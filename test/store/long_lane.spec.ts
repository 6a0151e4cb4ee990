import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import { ClaimLostError } from '../../src/common/errors.js';
import type { Job, JobContext } from '../../src/jobs/jobs.types.js';
import { LongClaims } from '../../src/jobs/lanes/long_claims.js';
import { placeOf } from '../../src/jobs/policy/claim_plan.js';
import { claimRows, readClaimed } from '../../src/jobs/store/long_lane.store.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected, TargetOutcomeUnknown, TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const MINUTE = 60_000;
const T = 'test:work';

/** Handlers that wait until the test lets them end. */
class Gate {
  readonly seen: Job[] = [];
  readonly contexts: JobContext[] = [];
  private readonly waiting: { resolve(): void; reject(error: unknown): void }[] = [];
  private arrivals: (() => void)[] = [];

  target(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    return { name: T, lane: 'long', handler: (job, context) => this.run(job, context), ...options };
  }

  /** Resolves once `count` runs have started in all. */
  async started(count: number): Promise<void> {
    while (this.seen.length < count) await new Promise<void>((resolve) => this.arrivals.push(resolve));
  }

  open(): void {
    for (const each of this.waiting.splice(0)) each.resolve();
  }

  failFirst(error: unknown): void {
    this.waiting.shift()?.reject(error);
  }

  fail(error: unknown): void {
    for (const each of this.waiting.splice(0)) each.reject(error);
  }

  private run(job: Job, context: JobContext): Promise<void> {
    this.seen.push(job);
    this.contexts.push(context);
    for (const arrived of this.arrivals.splice(0)) arrived();
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      context.signal.addEventListener('abort', () => reject(context.signal.reason as Error));
    });
  }
}

class Recorder {
  readonly seen: Job[] = [];
  fail: (job: Job) => unknown = () => undefined;

  target(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    const handler = async (job: Job): Promise<void> => {
      this.seen.push(job);
      const error = this.fail(job);
      if (error) throw error;
    };
    return { name: T, lane: 'long', handler, ...options };
  }
}

describe('long lane', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  const many = (count: number, extra: object = {}): { target: string; payload: number }[] =>
    Array.from({ length: count }, (_, payload) => ({ target: T, payload, ...extra }));

  const only = async (pod: TestPod): Promise<JobDoc> => (await pod.jobs.findOne())!;

  describe('claims', () => {
    it('a row that succeeded is deleted', async () => {
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()]);
      await pod.sideEffect.enqueue(T, { a: 1 }, { key: 'k', headers: { h: 'v' } });
      await pod.drain();
      expect(recorder.seen).toMatchObject([{ payload: { a: 1 }, key: 'k', headers: { h: 'v' }, attempts: 0 }]);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('at most as many rows as there are slots run at once, under one token and a 5-min lease', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueueMany(many(12));
      expect(await pod.longLane.startOnce()).toBe(10);
      expect(await pod.longLane.startOnce()).toBe(0);
      const running = await pod.jobs.find({ status: 'RUNNING' }).toArray();
      expect(running).toHaveLength(10);
      expect(new Set(running.map((row) => row.claim_token)).size).toBe(1);
      expect(running[0]!.lease_until).toEqual(new Date(clock.now().getTime() + 5 * MINUTE));
      gate.open();
      await pod.longLane.idle();
      expect(await pod.longLane.startOnce()).toBe(2);
      gate.open();
      await pod.longLane.idle();
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('rows run by priority, then due time', async () => {
      const recorder = new Recorder();
      const pod = await db.pod({ long_lane: { slots: 1 } }, [recorder.target()]);
      for (const [payload, priority] of [
        ['low', 1],
        ['normal', 2],
        ['high', 3],
      ] as const)
        await pod.sideEffect.enqueue(T, payload, { priority });
      await pod.sideEffect.enqueue(T, 'normal too', {});
      await pod.drain();
      expect(recorder.seen.map((job) => job.payload)).toEqual(['high', 'normal', 'normal too', 'low']);
    });

    it('the most urgent rows of all targets go first', async () => {
      const recorder = new Recorder();
      const targets = ['a:x', 'b:x'].map((name) => recorder.target({ name }));
      const pod = await db.pod({ long_lane: { slots: 2 } }, targets);
      await pod.sideEffect.enqueueMany([1, 2, 3].map((payload) => ({ target: 'a:x', payload })));
      await pod.sideEffect.enqueue('b:x', 'urgent', { priority: 3 });
      await pod.longLane.runOnce();
      expect(recorder.seen.map((job) => job.payload)).toContain('urgent');
    });

    it('a row is not claimed before its time', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1, { delay_ms: MINUTE, priority: 3 });
      await pod.drain();
      expect(recorder.seen).toHaveLength(0);
      clock.advance(MINUTE);
      await pod.drain();
      expect(recorder.seen).toHaveLength(1);
    });

    it('a target runs at most its own concurrency per pod', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target({ concurrency: 3 })]);
      await pod.sideEffect.enqueueMany(many(8));
      expect(await pod.longLane.startOnce()).toBe(3);
      expect(await pod.longLane.startOnce()).toBe(0);
      gate.open();
      await pod.longLane.idle();
    });

    it('a target that is full, with rows waiting, is looked at again when a place frees or at the idle pace, not in a spin', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const options = { workers: 'on', long_lane: { idle_poll_ms: [1_234] } } as const;
      const pod = await db.pod(options, [gate.target({ concurrency: 3 })], clock);
      await pod.sideEffect.enqueueMany(many(8));
      let waits = false;
      void clock.armed(1_234).then(() => (waits = true));
      for (let turns = 0; turns < 5_000 && !(waits && gate.seen.length === 3); turns++) {
        clock.advance(0);
        await turn();
      }
      const waiting = clock.armed(1_234).then(() => true);
      const spinning = (async () => {
        for (let turns = 0; turns < 1_000; turns++) {
          clock.advance(0);
          await turn();
        }
        return false;
      })();
      expect(gate.seen).toHaveLength(3);
      expect(await Promise.race([waiting, spinning])).toBe(true);
      gate.open();
      await gate.started(6);
      gate.open();
      await gate.started(8);
      gate.open();
    });

    it('two pods that claim at once share the rows: each runs once', async () => {
      const recorder = new Recorder();
      const pods = [await db.pod({}, [recorder.target()]), await db.pod({}, [recorder.target()])];
      await pods[0]!.sideEffect.enqueueMany(many(100));
      await Promise.all(pods.map((pod) => pod.drain()));
      expect(recorder.seen.map((job) => job.payload as number).sort((a, b) => a - b)).toEqual(
        Array.from({ length: 100 }, (_, index) => index),
      );
    });

    it('pods that know of each other claim different rows of a backlog: no claim loses a row', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pods = [];
      for (let index = 0; index < 4; index++) pods.push(await db.pod({}, [gate.target()], clock));
      for (let beat = 0; beat < 2; beat++) for (const pod of pods) await pod.leases.heartbeat();
      await pods[0]!.sideEffect.enqueueMany(many(200));
      for (let round = 0; round < 4; round++) {
        await Promise.all(pods.map((pod) => pod.longLane.startOnce()));
        gate.open();
        await Promise.all(pods.map((pod) => pod.longLane.idle()));
      }
      const claims = pods.flatMap((pod) => pod.eventsOf('claimed'));
      expect(claims.filter(({ conflicts }) => conflicts > 0)).toEqual([]);
      expect(gate.seen.length).toBeGreaterThan(100);
      while (gate.seen.length < 200) {
        await Promise.all(pods.map((pod) => pod.longLane.startOnce()));
        gate.open();
        await Promise.all(pods.map((pod) => pod.longLane.idle()));
      }
      expect(await pods[0]!.jobs.countDocuments()).toBe(0);
    });

    it('a target this pod does not know is left alone and spends no attempt', async () => {
      const knowing = await db.pod({}, [new Recorder().target()]);
      const other = await db.pod({}, [new Recorder().target({ name: 'other:thing' })]);
      await knowing.sideEffect.enqueue(T, 1);
      await other.drain();
      expect(await only(other)).toMatchObject({ status: 'PENDING', attempts: 0 });
    });

    it('a row that another pod has claimed, or that is not due, is not claimed over', async () => {
      const pod = await db.pod({}, [new Recorder().target()]);
      await pod.sideEffect.enqueueMany([...many(1), { target: T, payload: 'later', delay_ms: MINUTE }]);
      const ids = (await pod.jobs.find().toArray()).map((row) => row._id);
      const now = pod.now();
      const claim = (token: string) => ({ pod: token, token, now, until: new Date(now.getTime() + MINUTE) });
      await claimRows(pod.collections, ids, claim('first'));
      await claimRows(pod.collections, ids, claim('second'));
      expect(await readClaimed(pod.collections, ids, 'first')).toHaveLength(1);
      expect(await readClaimed(pod.collections, ids, 'second')).toHaveLength(0);
    });

    it('a claim whose reply was lost is read by its token in the next round, and run', async () => {
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()]);
      await pod.sideEffect.enqueue(T, 1);
      const updateMany = pod.jobs.updateMany.bind(pod.jobs);
      pod.jobs.updateMany = async (...args) => {
        await updateMany(...args);
        pod.jobs.updateMany = updateMany;
        throw new Error('the reply was lost');
      };
      await expect(pod.longLane.runOnce()).rejects.toThrow('lost');
      expect(await only(pod)).toMatchObject({ status: 'RUNNING' });
      await pod.longLane.runOnce();
      expect(recorder.seen).toHaveLength(1);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('a claim found after its lease is not started: the row is given back', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      const find = pod.jobs.updateMany.bind(pod.jobs);
      pod.jobs.updateMany = async (...args) => {
        pod.jobs.updateMany = find;
        await find(...args);
        throw new Error('the reply was lost');
      };
      await expect(pod.longLane.runOnce()).rejects.toThrow('lost');
      clock.advance(5 * MINUTE);
      await pod.longLane.startOnce();
      await pod.longLane.idle();
      expect(recorder.seen).toHaveLength(0);
      expect(await only(pod)).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
    });
  });

  describe('outcomes', () => {
    it('an answered failure spends an attempt, gives the claim back and waits 1, 2, 4, 8, 16 min; the sixth is DEAD', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new Error('no');
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      for (const [index, minutes] of [1, 2, 4, 8, 16].entries()) {
        await pod.drain();
        const row = await only(pod);
        expect(row).toMatchObject({ status: 'PENDING', attempts: index + 1, last_error: 'no' });
        expect(row.next_run_at).toEqual(new Date(clock.now().getTime() + minutes * MINUTE));
        for (const field of ['claimed_by', 'claim_token', 'lease_until', 'running_code', 'started_at'])
          expect(row).not.toHaveProperty(field);
        clock.advance(minutes * MINUTE);
      }
      await pod.drain();
      expect(await only(pod)).toMatchObject({ status: 'DEAD', attempts: 6, closed_at: clock.now() });
      expect((await only(pod)).history).toHaveLength(6);
    });

    it('a code may have its own retries and its own number of attempts', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new Error('no');
      const codes = { hasty: { max_attempts: 2, retry: { base_ms: 1000, cap_ms: 1000 } } };
      const pod = await db.pod({}, [recorder.target({ codes })], clock);
      await pod.sideEffect.enqueue(T, 1, { code: 'hasty' });
      await pod.drain();
      expect((await only(pod)).next_run_at).toEqual(new Date(clock.now().getTime() + 500));
      clock.advance(500);
      await pod.drain();
      expect(await only(pod)).toMatchObject({ status: 'DEAD', attempts: 2 });
    });

    it('a rejected row is DEAD at once', async () => {
      const recorder = new Recorder();
      recorder.fail = () => new JobRejected('never');
      const pod = await db.pod({}, [recorder.target()]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(await only(pod)).toMatchObject({ status: 'DEAD', last_error: 'never' });
    });

    it('an unreachable target is paused, its row keeps its attempts and its place', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new TargetUnreachable('down');
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueueMany(many(3));
      await pod.drain();
      const before = recorder.seen.length;
      expect(await pod.jobs.countDocuments({ status: 'PENDING', attempts: 0 })).toBe(3);
      clock.advance(30_000);
      await pod.drain();
      expect(recorder.seen).toHaveLength(before + 1); // one probe
      recorder.fail = () => undefined;
      clock.advance(30_000);
      await pod.drain();
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('a permit to probe goes back when the claim behind it fails: the next round probes', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new TargetUnreachable('down');
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.runOnce();
      clock.advance(30_000);
      pod.longLane.hint(T);
      const find = pod.jobs.find.bind(pod.jobs);
      pod.jobs.find = () => {
        pod.jobs.find = find;
        throw new Error('the database is gone');
      };
      await expect(pod.longLane.runOnce()).rejects.toThrow('gone');
      await pod.pause.written();
      recorder.fail = () => undefined;
      pod.longLane.hint(T);
      await pod.longLane.runOnce();
      expect(recorder.seen).toHaveLength(2);
    });

    it('the rows of a target that came back start in a ramp, not all at once', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new TargetUnreachable('down');
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueueMany(many(20));
      await pod.longLane.runOnce();
      recorder.fail = () => undefined;
      clock.advance(30_000);
      const rounds: number[] = [];
      for (let round = 0; round < 3; round++) rounds.push(await pod.longLane.runOnce());
      expect(rounds[0]).toBe(1); // the probe
      expect(rounds[1]).toBeLessThan(5);
      expect(rounds[2]).toBeGreaterThan(rounds[1]!);
      await pod.drain();
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('the success of a run from before the pause does not end it', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueueMany(many(2));
      await pod.longLane.startOnce();
      await gate.started(2);
      gate.failFirst(new TargetUnreachable('down'));
      while (pod.eventsOf('target_paused').length === 0) await turn();
      gate.open();
      await pod.longLane.idle();
      expect(pod.eventsOf('target_resumed')).toHaveLength(0);
    });

    it('an unknown end is DEAD at most once, and waits at least once', async () => {
      const recorder = new Recorder();
      recorder.fail = () => new TargetOutcomeUnknown('no answer');
      const pod = await db.pod({}, [
        recorder.target({ name: 'once:x', delivery_mode: 'at_most_once' }),
        recorder.target({ name: 'again:x' }),
      ]);
      await pod.sideEffect.enqueue('once:x', 1);
      await pod.sideEffect.enqueue('again:x', 1);
      await pod.drain();
      expect(await pod.jobs.findOne({ target: 'once:x' })).toMatchObject({ status: 'DEAD' });
      expect(await pod.jobs.findOne({ target: 'again:x' })).toMatchObject({ status: 'PENDING', attempts: 0 });
    });

    it('a handler that does not come back in time gives its slot back: an attempt at least once, DEAD at most once', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const options = { timeout_ms: 1000 };
      const pod = await db.pod(
        {},
        [
          gate.target({ name: 'again:x', ...options }),
          gate.target({ name: 'once:x', ...options, delivery_mode: 'at_most_once' }),
        ],
        clock,
      );
      await pod.sideEffect.enqueue('again:x', 1);
      await pod.sideEffect.enqueue('once:x', 1);
      await pod.longLane.startOnce();
      await gate.started(2);
      clock.advance(1000);
      await pod.longLane.idle();
      expect(gate.contexts.every(({ signal }) => signal.aborted)).toBe(true);
      expect(await pod.jobs.findOne({ target: 'again:x' })).toMatchObject({ status: 'PENDING', attempts: 1 });
      expect(await pod.jobs.findOne({ target: 'once:x' })).toMatchObject({ status: 'DEAD' });
      expect(pod.eventsOf('target_paused')).toHaveLength(0);
    });

    it('outcomes that cannot be written are kept, with their claims renewed, and written when the database is back', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      const deleteMany = pod.jobs.deleteMany.bind(pod.jobs);
      let failures = 0;
      pod.jobs.deleteMany = async (...args) => {
        if (failures++ < 1) throw new Error('the database is gone');
        return deleteMany(...args);
      };
      await pod.longLane.startOnce();
      while (pod.eventsOf('outcome_kept').length === 0) await turn();
      expect(pod.keeper.rows()).toHaveLength(1);
      clock.advance(1000);
      await pod.longLane.idle();
      expect(recorder.seen).toHaveLength(1);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('a finished row is kept as DONE where its target says so, and goes on rejecting its dedupe_key', async () => {
      const clock = new FakeClock();
      const pod = await db.pod({}, [new Recorder().target({ keep_done_ms: MINUTE })], clock);
      await pod.sideEffect.enqueue(T, 1, { dedupe_key: 'd' });
      await pod.drain();
      const row = await only(pod);
      expect(row).toMatchObject({ status: 'DONE', expire_at: new Date(clock.now().getTime() + MINUTE) });
      expect(row).not.toHaveProperty('claim_token');
      expect(await pod.sideEffect.enqueue(T, 1, { dedupe_key: 'd' })).toMatchObject({ inserted: false });
    });

    it('a DEAD row expires where its target says so', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      recorder.fail = () => new JobRejected('never');
      const pod = await db.pod({}, [recorder.target({ keep_dead_ms: MINUTE })], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(await only(pod)).toMatchObject({ status: 'DEAD', expire_at: new Date(clock.now().getTime() + MINUTE) });
    });
  });

  describe('leases', () => {
    it('a 7-min run is renewed and never reclaimed', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      const other = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      for (let minute = 0; minute < 7; minute++) {
        clock.advance(MINUTE);
        await pod.keeper.look();
        expect(await other.sweeper.sweep()).toBe(0);
      }
      gate.open();
      await pod.longLane.idle();
      expect(gate.seen).toHaveLength(1);
      expect(gate.contexts[0]!.signal.aborted).toBe(false);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('all running rows are renewed with one update', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueueMany(many(10));
      await pod.longLane.startOnce();
      clock.advance(MINUTE);
      const commands = await pod.commandsOf(() => pod.keeper.look());
      expect(commands.filter((name) => name === 'update')).toHaveLength(1);
      gate.open();
      await pod.longLane.idle();
    });

    it('a dead pod is found by its expired lease: the row runs again from the start, one crash more', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const dying = await db.pod({}, [gate.target()], clock);
      await dying.sideEffect.enqueue(T, 1);
      await dying.longLane.startOnce();
      await dying.die();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()], clock);
      clock.advance(5 * MINUTE - 1);
      expect(await pod.sweeper.sweep()).toBe(0);
      clock.advance(1);
      expect(await pod.sweeper.sweep()).toBe(1);
      expect(await only(pod)).toMatchObject({ status: 'PENDING', crashes: 1, attempts: 0 });
      await pod.drain();
      expect(recorder.seen).toHaveLength(1);
    });

    it('a row that kills its pods ends: DEAD at max_crashes', async () => {
      const clock = new FakeClock();
      const pod = await db.pod({ max_crashes: 2 }, [new Gate().target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      for (let crash = 1; crash <= 2; crash++) {
        const dying = await db.pod({ max_crashes: 2 }, [new Gate().target()], clock);
        expect(await dying.longLane.startOnce()).toBe(1);
        await dying.die();
        clock.advance(5 * MINUTE);
        await pod.sweeper.sweep();
      }
      expect(await only(pod)).toMatchObject({ status: 'DEAD', crashes: 2 });
      expect((await only(pod)).last_error).toContain('lease expired');
    });

    it('of rows that ran together when their pod died, twice, one runs at a time: what kills pods takes no neighbour with it again', async () => {
      const clock = new FakeClock();
      const pod = await db.pod({}, [new Gate().target()], clock);
      await pod.sideEffect.enqueueMany(many(3));
      for (let crash = 0; crash < 2; crash++) {
        const dying = await db.pod({}, [new Gate().target()], clock);
        expect(await dying.longLane.startOnce()).toBe(3); // once is no reason to wait for each other
        await dying.die();
        clock.advance(5 * MINUTE);
        await pod.sweeper.sweep();
      }
      const gate = new Gate();
      const next = await db.pod({}, [gate.target()], clock);
      await next.sideEffect.enqueue(T, 'innocent');
      await next.longLane.startOnce();
      await gate.started(2);
      expect(gate.seen.filter((job) => job.payload !== 'innocent')).toHaveLength(1);
      gate.open();
      await next.longLane.idle();
      const later = new Date(clock.now().getTime() + 10_000);
      expect(await next.jobs.find().toArray()).toMatchObject(
        [1, 2].map(() => ({ status: 'PENDING', crashes: 2, attempts: 0, next_run_at: later })),
      );
      for (let round = 0; round < 2; round++) {
        clock.advance(10_000);
        expect(await next.longLane.startOnce()).toBeGreaterThan(0);
        gate.open();
        await next.longLane.idle();
      }
      expect(gate.seen).toHaveLength(4);
      expect(await next.jobs.countDocuments()).toBe(0);
    });

    it('a claim that may run out before its first renewal is not started', async () => {
      const clock = new FakeClock();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      const updateMany = pod.jobs.updateMany.bind(pod.jobs);
      pod.jobs.updateMany = async (...args) => {
        pod.jobs.updateMany = updateMany;
        const answer = await updateMany(...args);
        clock.advance(4 * MINUTE); // a slow answer: a minute of the lease is left, and the renewal comes in a minute
        return answer;
      };
      await pod.longLane.runOnce();
      expect(recorder.seen).toHaveLength(0);
      expect(await only(pod)).toMatchObject({ status: 'PENDING', attempts: 0 });
    });

    it('an at-most-once row whose lease expired is DEAD instead of running again', async () => {
      const clock = new FakeClock();
      const target = { delivery_mode: 'at_most_once' } as const;
      const dying = await db.pod({}, [new Gate().target(target)], clock);
      await dying.sideEffect.enqueue(T, 1);
      await dying.longLane.startOnce();
      await dying.die();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target(target)], clock);
      clock.advance(5 * MINUTE);
      await pod.sweeper.sweep();
      await pod.drain();
      expect(recorder.seen).toHaveLength(0);
      expect(await only(pod)).toMatchObject({ status: 'DEAD' });
      expect(pod.eventsOf('dead')).toHaveLength(1);
    });

    it('a renewal that comes between a sweep’s look and its write keeps the row', async () => {
      const clock = new FakeClock();
      const dying = await db.pod({}, [new Gate().target()], clock);
      await dying.sideEffect.enqueue(T, 1);
      await dying.longLane.startOnce();
      await dying.die();
      const pod = await db.pod({}, [new Recorder().target()], clock);
      clock.advance(5 * MINUTE);
      const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
      pod.jobs.bulkWrite = async (...args) => {
        await pod.jobs.updateOne({}, { $set: { lease_until: new Date(clock.now().getTime() + MINUTE) } });
        return bulkWrite(...args);
      };
      expect(await pod.sweeper.sweep()).toBe(0);
      expect(await only(pod)).toMatchObject({ status: 'RUNNING', crashes: 0 });
    });

    it('a pod that does not know the target does not reclaim its rows', async () => {
      const clock = new FakeClock();
      const dying = await db.pod({}, [new Gate().target()], clock);
      await dying.sideEffect.enqueue(T, 1);
      await dying.longLane.startOnce();
      await dying.die();
      const other = await db.pod({}, [new Recorder().target({ name: 'other:thing' })], clock);
      clock.advance(5 * MINUTE);
      expect(await other.sweeper.sweep()).toBe(0);
      expect(await only(other)).toMatchObject({ status: 'RUNNING', crashes: 0 });
    });

    it('a stalled pod whose row was reclaimed loses the claim: signal aborted, late outcome without effect, counted', async () => {
      const stalled = new FakeClock();
      const gate = new Gate();
      const a = await db.pod({}, [gate.target()], stalled);
      await a.sideEffect.enqueue(T, 1);
      await a.longLane.startOnce();
      const clock = new FakeClock();
      clock.advance(5 * MINUTE);
      const second = new Gate();
      const b = await db.pod({}, [second.target()], clock);
      await b.sweeper.sweep();
      await b.longLane.startOnce();
      await second.started(1);

      stalled.advance(MINUTE); // a wakes: its clock stood still, so its own deadline does not warn it
      await a.keeper.look();
      expect(gate.contexts[0]!.signal.aborted).toBe(true);
      await a.longLane.idle();
      expect(a.eventsOf('claim_lost').map(({ where }) => where)).toEqual(['renewal', 'outcome']);
      expect(await only(b)).toMatchObject({ status: 'RUNNING', claimed_by: expect.any(String), attempts: 0 });
      second.open();
      await b.longLane.idle();
      expect(await b.jobs.countDocuments()).toBe(0);
    });

    it('a late success of a reclaimed row does not delete the row that runs again', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const a = await db.pod({}, [gate.target()], clock);
      await a.sideEffect.enqueue(T, 1);
      await a.longLane.startOnce();
      await gate.started(1);
      clock.advance(5 * MINUTE);
      const second = new Gate();
      const b = await db.pod({}, [second.target()], clock);
      await b.sweeper.sweep();
      await b.longLane.startOnce();
      gate.open(); // a has not looked at its claims yet
      await a.longLane.idle();
      expect(await b.jobs.countDocuments({ status: 'RUNNING' })).toBe(1);
      expect(a.eventsOf('claim_lost')).toHaveLength(1);
      second.open();
      await b.longLane.idle();
    });

    it('a blocked event loop is a lost claim when the deadline passed without a renewal', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      await gate.started(1);
      clock.advance(5 * MINUTE);
      pod.jobs.updateMany = () => Promise.reject(new Error('the database is gone'));
      await expect(pod.keeper.look()).rejects.toThrow('gone');
      expect(gate.contexts[0]!.signal.aborted).toBe(true);
      await pod.longLane.idle();
    });

    it.each([
      ['at_most_once', { status: 'DEAD', attempts: 0 }],
      ['at_least_once', { status: 'PENDING', attempts: 0 }],
    ] as const)(
      'a handler that fails because its claim was lost gave no answer, even where nobody took the row yet (%s)',
      async (delivery_mode, expected) => {
        const clock = new FakeClock();
        const gate = new Gate(); // rejects when its signal aborts
        const pod = await db.pod({}, [gate.target({ delivery_mode })], clock);
        await pod.sideEffect.enqueue(T, 1);
        await pod.longLane.startOnce();
        await gate.started(1);
        clock.advance(5 * MINUTE);
        const updateMany = pod.jobs.updateMany.bind(pod.jobs);
        pod.jobs.updateMany = () => Promise.reject(new Error('the database is gone'));
        await expect(pod.keeper.look()).rejects.toThrow('gone');
        pod.jobs.updateMany = updateMany;
        await pod.longLane.idle();
        expect(await only(pod)).toMatchObject(expected);
      },
    );

    it('a sweep leaves this pod’s own running rows to its renewals', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      clock.advance(5 * MINUTE);
      expect(await pod.sweeper.sweep()).toBe(0);
      gate.open();
      await pod.longLane.idle();
      expect(gate.seen).toHaveLength(1);
    });
  });

  describe('exclusive codes', () => {
    it('one row per code runs over all pods; others of the code wait, other codes do not', async () => {
      const gate = new Gate();
      const pods = [
        await db.pod({}, [gate.target({ exclusive: true })]),
        await db.pod({}, [gate.target({ exclusive: true })]),
      ];
      await pods[0]!.sideEffect.enqueueMany([...many(3, { code: 'a' }), ...many(1, { code: 'b' })]);
      await Promise.all(pods.map((pod) => pod.longLane.startOnce()));
      for (const pod of pods) await pod.longLane.startOnce();
      const running = await pods[0]!.jobs.find({ status: 'RUNNING' }).toArray();
      expect(new Set(running.map((row) => row.running_code))).toEqual(new Set(['a', 'b']));
      for (let round = 0; round < 3; round++) {
        gate.open();
        for (const pod of pods) await pod.longLane.idle();
        for (const pod of pods) await pod.longLane.startOnce();
      }
      expect(gate.seen).toHaveLength(4);
    });

    it('a code that is busy is no error: the claim that the unique index refused goes on without it', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target({ exclusive: true })]);
      await pod.sideEffect.enqueueMany([...many(1, { code: 'a' }), ...many(1, { code: 'b' })]);
      // Another pod takes the place after this one looked for busy codes.
      const findOneAndUpdate = pod.jobs.findOneAndUpdate.bind(pod.jobs);
      let first = true;
      pod.jobs.findOneAndUpdate = (async (...args: Parameters<typeof findOneAndUpdate>) => {
        if (first) {
          first = false;
          const row = (await pod.jobs.findOne({ code: 'a' }))!;
          const { _id, ...rest } = row;
          void _id;
          await pod.jobs.insertOne({
            ...rest,
            dedupe_key: 'elsewhere',
            status: 'RUNNING',
            running_code: 'a',
            claim_token: 'x',
            lease_until: new Date(8e12),
          } as JobDoc);
        }
        return findOneAndUpdate(...args);
      }) as typeof findOneAndUpdate;
      expect(await pod.longLane.startOnce()).toBe(1);
      expect(gate.seen[0]!.code).toBe('b');
      gate.open();
      await pod.longLane.idle();
    });

    it('max_running lets so many rows of a code run over all pods', async () => {
      const gate = new Gate();
      const pods = [
        await db.pod({}, [gate.target({ max_running: 3 })]),
        await db.pod({}, [gate.target({ max_running: 3 })]),
      ];
      await pods[0]!.sideEffect.enqueueMany(many(6, { code: 'a' }));
      for (let round = 0; round < 2; round++) await Promise.all(pods.map((pod) => pod.longLane.startOnce()));
      const running = await pods[0]!.jobs.find({ status: 'RUNNING' }).toArray();
      expect(new Set(running.map((row) => row.running_code))).toEqual(
        new Set([1, 2, 3].map((place) => placeOf('a', place))),
      );
      gate.open();
      for (const pod of pods) await pod.longLane.idle();
    });

    it('5,000 waiting rows of a busy code do not hide one row of another code', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target({ exclusive: true })]);
      await pod.sideEffect.enqueueMany(many(1, { code: 'busy' }));
      await pod.longLane.startOnce();
      await pod.sideEffect.enqueueMany(many(5000, { code: 'busy' }));
      await pod.sideEffect.enqueue(T, 'other', { code: 'other', priority: 1 });
      expect(await pod.longLane.startOnce()).toBe(1);
      expect(gate.seen[1]!.code).toBe('other');
      gate.open();
      await pod.longLane.idle();
    });

    it('a reclaimed exclusive row frees its code', async () => {
      const clock = new FakeClock();
      const dying = await db.pod({}, [new Gate().target({ exclusive: true })], clock);
      await dying.sideEffect.enqueueMany(many(2, { code: 'a' }));
      await dying.longLane.startOnce();
      await dying.die();
      const recorder = new Recorder();
      const pod = await db.pod({}, [recorder.target({ exclusive: true })], clock);
      await pod.drain();
      expect(recorder.seen).toHaveLength(0);
      clock.advance(5 * MINUTE);
      await pod.sweeper.sweep();
      await pod.drain();
      expect(recorder.seen).toHaveLength(2);
    });
  });

  describe('cancel and progress', () => {
    const request = { at: new Date(), by: 'ada', reason: 'wrong file' };

    it('a RUNNING row that an admin cancels: its signal aborts, then the row is removed', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      await gate.started(1);
      await pod.jobs.updateOne({ status: 'RUNNING' }, { $set: { cancel_requested: request } });
      await pod.keeper.look();
      expect(gate.contexts[0]!.signal.reason).toMatchObject({ why: 'cancelled' });
      await pod.longLane.idle();
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(pod.eventsOf('cancelled')).toHaveLength(1);
      expect(pod.eventsOf('dead')).toHaveLength(0);
    });

    it('a failure that comes before the pod saw the request removes the row too', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      await gate.started(1);
      await pod.jobs.updateOne({ status: 'RUNNING' }, { $set: { cancel_requested: request } });
      gate.fail(new Error('no'));
      await pod.longLane.idle();
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('a cancelled row whose pod died is removed by the sweep, not run again', async () => {
      const clock = new FakeClock();
      const dying = await db.pod({}, [new Gate().target()], clock);
      await dying.sideEffect.enqueue(T, 1);
      await dying.longLane.startOnce();
      await dying.jobs.updateOne({ status: 'RUNNING' }, { $set: { cancel_requested: request } });
      await dying.die();
      const pod = await db.pod({}, [new Recorder().target()], clock);
      clock.advance(5 * MINUTE);
      await pod.sweeper.sweep();
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(pod.eventsOf('cancelled')).toHaveLength(1);
    });

    it('progress is written with the next look at the claims, and refused when it is no number', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      await gate.started(1);
      const { progress } = gate.contexts[0]!;
      progress(10);
      progress(50, 'half');
      expect(() => progress(101)).toThrow('from 0 to 100');
      expect(() => progress(Number.NaN)).toThrow('from 0 to 100');
      await pod.keeper.look();
      expect((await only(pod)).progress).toMatchObject({ percent: 50, note: 'half' });
      gate.open();
      await pod.longLane.idle();
    });
  });

  describe('completion and on_dead', () => {
    it('ctx.complete writes and removes the row in one transaction', async () => {
      const handler = async (_: Job, context: JobContext): Promise<void> =>
        context.complete(
          async (tx) => void (await pod.sideEffect.enqueue('next:x', 'chained', { dedupe_key: 'n' }, tx)),
        );
      const recorder = new Recorder();
      const pod: TestPod = await db.pod({}, [{ name: T, lane: 'long', handler }, recorder.target({ name: 'next:x' })]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(recorder.seen.map((job) => job.payload)).toEqual(['chained']);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it.each(['fast', 'long'] as const)(
      'ctx.complete on the %s lane keeps nothing when the row is lost',
      async (lane) => {
        const errors: unknown[] = [];
        const handler = async (job: Job, context: JobContext): Promise<void> => {
          await pod.jobs.deleteOne({ dedupe_key: job.dedupe_key });
          await context
            .complete(async (tx) => void (await pod.sideEffect.enqueue('next:x', 1, {}, tx)))
            .catch((error: unknown) => errors.push(error));
        };
        const pod: TestPod = await db.pod({ partitions: 1 }, [
          { name: T, lane, handler },
          new Recorder().target({ name: 'next:x' }),
        ]);
        await pod.leases.heartbeat();
        await pod.sideEffect.enqueue(T, 1);
        await pod.drain();
        expect(errors).toEqual([expect.any(ClaimLostError)]);
        expect(await pod.jobs.countDocuments()).toBe(0);
      },
    );

    it('what fails inside ctx.complete keeps the row, and is an answered failure', async () => {
      const handler = async (_: Job, context: JobContext): Promise<void> =>
        context.complete(async (tx) => {
          await pod.sideEffect.enqueue('next:x', 1, {}, tx);
          throw new Error('half way');
        });
      const pod: TestPod = await db.pod({}, [
        { name: T, lane: 'long', handler },
        new Recorder().target({ name: 'next:x' }),
      ]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(await pod.jobs.find().toArray()).toMatchObject([{ target: T, attempts: 1, last_error: 'half way' }]);
    });

    it('a row that its handler completed and then failed is done', async () => {
      const handler = async (_: Job, context: JobContext): Promise<void> => {
        await context.complete(async () => undefined);
        throw new Error('too late to matter');
      };
      const pod = await db.pod({}, [{ name: T, lane: 'long', handler }]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(pod.eventsOf('run_ended')).toMatchObject([{ result: 'completed' }]);
    });

    it.each(['fast', 'long'] as const)(
      'on_dead on the %s lane writes in the transaction that makes the row DEAD',
      async (lane) => {
        const pod: TestPod = await db.pod({ partitions: 1 }, [
          {
            name: T,
            lane,
            handler: () => Promise.reject(new JobRejected('never')),
            on_dead: (job, tx) =>
              pod.sideEffect.enqueue('alarm:x', { job: job.id, of: job.payload }, { delay_ms: 1000 }, tx),
          },
          new Recorder().target({ name: 'alarm:x' }),
        ]);
        await pod.leases.heartbeat();
        await pod.sideEffect.enqueue(T, { a: 1 });
        await pod.drain();
        const [dead, alarm] = await pod.jobs.find().sort({ _id: 1 }).toArray();
        expect(dead).toMatchObject({ status: 'DEAD', target: T });
        expect(alarm).toMatchObject({ target: 'alarm:x', payload: { job: dead!._id.toHexString(), of: { a: 1 } } });
      },
    );

    it('an on_dead that throws does not keep the row alive, and leaves nothing of its own', async () => {
      const pod: TestPod = await db.pod({}, [
        {
          name: T,
          lane: 'long',
          handler: () => Promise.reject(new JobRejected('never')),
          on_dead: async (_, tx) => {
            await pod.sideEffect.enqueue('alarm:x', 1, {}, tx);
            throw new Error('the hook is broken');
          },
        },
        new Recorder().target({ name: 'alarm:x' }),
      ]);
      await pod.sideEffect.enqueue(T, 1);
      await pod.drain();
      expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD', last_error: 'never' }]);
      expect(pod.eventsOf('on_dead_failed')).toHaveLength(1);
    });

    it('on_dead is called for a row whose lease expired at most once, with its payload', async () => {
      const clock = new FakeClock();
      const told: Job[] = [];
      const target = new Gate().target({ delivery_mode: 'at_most_once', on_dead: async (job) => void told.push(job) });
      const dying = await db.pod({}, [target], clock);
      await dying.sideEffect.enqueue(T, { a: 1 });
      await dying.longLane.startOnce();
      await dying.die();
      const pod = await db.pod({}, [target], clock);
      clock.advance(5 * MINUTE);
      await pod.sweeper.sweep();
      expect(told).toMatchObject([{ payload: { a: 1 } }]);
    });
  });

  describe('a backlog read ahead', () => {
    const noop = { name: T, lane: 'long', handler: async () => undefined } as const;

    it('is run once each, also where another pod claims the same rows meanwhile', async () => {
      const runs: unknown[] = [];
      const handler: JobTargetOptions['handler'] = async (job) => void runs.push(job.payload);
      const clock = new FakeClock();
      const [a, b] = [
        await db.pod({ long_lane: { slots: 10 } }, [{ ...noop, handler }], clock),
        await db.pod({ long_lane: { slots: 10 } }, [{ ...noop, handler }], clock),
      ];
      await a.sideEffect.enqueueMany(many(95));
      await Promise.all([a.drain(), b.drain()]);
      expect(new Set(runs).size).toBe(95);
      expect(runs).toHaveLength(95);
      expect(await a.jobs.countDocuments()).toBe(0);
    });

    it('does not end a burst: only a read of now lets the target go cold', async () => {
      const pod = await db.pod({ long_lane: { slots: 10 } }, [noop]);
      await pod.sideEffect.enqueueMany(many(25));
      const claims = pod.module.get(LongClaims);
      const target = pod.module.get(JobTargetsRegistry).require(T);
      const round = async (): Promise<{ rows: number; hot: boolean }> => {
        let hot = false;
        const rows = await claims.claim([{ target, places: 10 }], 10, () => void (hot = true));
        return { rows: rows.length, hot };
      };
      expect([await round(), await round(), await round(), await round()]).toEqual([
        { rows: 10, hot: true },
        { rows: 10, hot: true },
        { rows: 5, hot: true }, // read ahead
        { rows: 0, hot: false },
      ]);
    });
  });

  describe('commands', () => {
    const noop = { name: T, lane: 'long', handler: async () => undefined } as const;

    it.each([
      [100, 0.1],
      [10, 1.1],
    ])('%i slots: at most %f commands per no-op row', async (slots, most) => {
      const pod = await db.pod({ long_lane: { slots } }, [noop]);
      await pod.sideEffect.enqueueMany(many(300));
      const commands = await pod.commandsOf(() => pod.drain());
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(commands.length / 300).toBeLessThanOrEqual(most);
    });
  });

  describe('shutdown', () => {
    it('starts nothing new and lets what runs end', async () => {
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()]);
      await pod.sideEffect.enqueueMany(many(2));
      await pod.longLane.startOnce();
      await gate.started(2);
      await pod.sideEffect.enqueue(T, 'later');
      const stopped = pod.longLane.stop(1000);
      gate.open();
      expect(await stopped).toBe(true);
      expect(await pod.longLane.startOnce()).toBe(0);
      expect(await pod.jobs.countDocuments({ status: 'PENDING', payload: 'later' })).toBe(1);
    });

    it('handlers still running after the grace are told to give up; at least once, their rows are due again at no charge', async () => {
      const clock = new FakeClock();
      const gate = new Gate();
      const pod = await db.pod({}, [gate.target()], clock);
      await pod.sideEffect.enqueue(T, 1);
      await pod.longLane.startOnce();
      await gate.started(1);
      const stopped = pod.longLane.stop(1000);
      await clock.armed(1000);
      clock.advance(1000);
      expect(await stopped).toBe(false);
      expect(gate.contexts[0]!.signal.reason).toMatchObject({ why: 'shutdown' });
      expect(await only(pod)).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
    });
  });
});
