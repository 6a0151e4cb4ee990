import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';

/** Lets a handler be caught in the middle of a send. */
class Gate {
  starts: string[] = [];
  private open = (): void => undefined;
  private entered = (): void => undefined;
  readonly inside = new Promise<void>((resolve) => void (this.entered = resolve));
  private readonly released = new Promise<void>((resolve) => void (this.open = resolve));

  target(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    return {
      name: T,
      lane: 'fast',
      handler: async (job) => {
        this.starts.push(JSON.stringify(job.payload));
        this.entered();
        await this.released;
      },
      ...options,
    };
  }

  release(): void {
    this.open();
  }
}

function counting(starts: unknown[], options: Partial<JobTargetOptions> = {}): JobTargetOptions {
  return { name: T, lane: 'fast', handler: async (job) => void starts.push(job.payload), ...options };
}

describe('ownership of partitions', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  const owned = (pod: TestPod): number => pod.leases.readable().length;

  it('one pod owns all, two share evenly, and the partitions of a dead pod move after its lease', async () => {
    const clock = new FakeClock();
    const a = await db.pod({ partitions: 64 }, [], clock);
    const b = await db.pod({ partitions: 64 }, [], clock);
    await a.leases.heartbeat();
    expect(owned(a)).toBe(64);
    await b.leases.heartbeat();
    await a.leases.heartbeat();
    await b.leases.heartbeat();
    expect([owned(a), owned(b)]).toEqual([32, 32]);
    await a.die();
    clock.advance(10_000);
    await b.leases.heartbeat();
    expect(owned(b)).toBe(32);
    clock.advance(20_001);
    await b.leases.heartbeat();
    expect(owned(b)).toBe(64);
  });

  it('8 pods that boot at once on an empty database own every partition exactly once', async () => {
    const clock = new FakeClock();
    const pods = await Promise.all(Array.from({ length: 8 }, () => db.pod({ partitions: 16 }, [], clock)));
    for (let round = 0; round < 8; round++) await Promise.all(pods.map((pod) => pod.leases.heartbeat()));
    const all = pods.flatMap((pod) => pod.leases.readable().map((each) => each.partition));
    expect(all.sort((x, y) => x - y)).toEqual(Array.from({ length: 16 }, (_, index) => index));
    expect(pods.map(owned)).toEqual(Array(8).fill(2));
  });

  it('a pod with another partition count refuses to start', async () => {
    await db.pod({ partitions: 4 });
    await expect(db.pod({ partitions: 8 })).rejects.toMatchObject({ code: 'partition_count' });
  });

  it('at most once: a row in flight when its owner died goes DEAD and is never started again', async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const a = await db.pod({ partitions: 1 }, [gate.target()], new FakeClock()); // stalls: its time stands still
    await a.leases.heartbeat();
    for (const version of [1, 2]) await a.sideEffect.enqueue(T, version, { key: 'k', version });
    const round = a.lane.runOnce();
    await gate.inside;
    const starts: unknown[] = [];
    const b = await db.pod({ partitions: 1 }, [counting(starts)], clock);
    clock.advance(30_001);
    await b.leases.heartbeat();
    await b.drain();
    expect(starts).toEqual([2]);
    const dead = await b.jobs.findOne({});
    expect(dead).toMatchObject({
      status: 'DEAD',
      payload: 1,
      last_error: 'in flight when its partition was taken over',
    });
    gate.release();
    await round; // the old owner wakes: its success must not end the row that was judged
    expect(await b.jobs.countDocuments({ status: 'DEAD' })).toBe(1);
    expect(a.eventsOf('outcome_lost')).toHaveLength(1);
  });

  it('at least once: a row in flight when its owner died counts a crash and runs again, alone', async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const a = await db.pod({ partitions: 1 }, [gate.target({ delivery_mode: 'at_least_once' })], clock);
    await a.leases.heartbeat();
    await a.sideEffect.enqueueMany([1, 2, 3].map((payload) => ({ target: T, payload, key: `k${payload}` })));
    void a.lane.runOnce();
    await gate.inside;
    await a.die();
    const batches: unknown[][] = [];
    const batch: JobTargetOptions = {
      name: T,
      lane: 'fast',
      delivery_mode: 'at_least_once',
      batch_handler: async (jobs) => void batches.push(jobs.map((job) => job.payload)),
    };
    const b = await db.pod({ partitions: 1 }, [batch], clock);
    clock.advance(30_001);
    await b.leases.heartbeat();
    expect((await b.jobs.find({}).toArray()).map((row) => row.crashes)).toEqual([1, 1, 1]);
    await b.drain();
    expect(batches.map((each) => each.length)).toEqual([1, 1, 1]);
    expect(await b.jobs.countDocuments()).toBe(0);
    gate.release();
  });

  it('rows in flight of a target that the new owner does not know are left for one that does', async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const a = await db.pod({ partitions: 1 }, [gate.target()], clock);
    await a.leases.heartbeat();
    await a.sideEffect.enqueue(T, 1);
    void a.lane.runOnce();
    await gate.inside;
    await a.die();
    gate.release();
    const old = await db.pod({ partitions: 1 }, [], clock);
    const before = { row: await old.jobs.findOne({}), mark: (await old.collections.partitions.findOne({}))!.inflight };
    expect(before.mark).toHaveLength(1);
    clock.advance(30_001);
    await old.leases.heartbeat();
    expect(owned(old)).toBe(1);
    const untouched = async (): Promise<void> => {
      expect(await old.jobs.findOne({})).toEqual(before.row);
      expect((await old.collections.partitions.findOne({}))!.inflight).toEqual(before.mark);
    };
    await untouched();
    await old.leases.leave();
    await untouched();
    const dead: unknown[] = [];
    const c = await db.pod(
      { partitions: 1 },
      [counting([], { on_dead: async (job) => dead.push(job.payload) })],
      clock,
    );
    await c.leases.heartbeat();
    expect(dead).toEqual([1]);
    expect(await c.jobs.findOne({})).toMatchObject({ status: 'DEAD' });
    expect((await c.collections.partitions.findOne({}))!.inflight).toEqual([]);
  });

  it('a row that kills its pods ends DEAD after max_crashes takeovers', async () => {
    const clock = new FakeClock();
    for (let crash = 1; crash <= 3; crash++) {
      const gate = new Gate();
      const pod = await db.pod(
        { partitions: 1, max_crashes: 3 },
        [gate.target({ delivery_mode: 'at_least_once' })],
        clock,
      );
      if (crash === 1) await pod.sideEffect.enqueue(T, 'poison');
      await pod.leases.heartbeat();
      void pod.lane.runOnce();
      await gate.inside;
      await pod.die();
      gate.release();
      clock.advance(30_001);
    }
    const last = await db.pod({ partitions: 1, max_crashes: 3 }, [counting([])], clock);
    await last.leases.heartbeat();
    expect(await last.jobs.findOne({})).toMatchObject({ status: 'DEAD', crashes: 3 });
  });

  it('a row whose outcome was written under the mark stays open at a takeover', async () => {
    const clock = new FakeClock();
    const failing = (): JobTargetOptions => ({ name: T, lane: 'fast', handler: () => Promise.reject(new Error('no')) });
    const a = await db.pod({ partitions: 1 }, [failing()], clock);
    await a.leases.heartbeat();
    await a.sideEffect.enqueue(T, 1);
    await a.drain();
    await a.die();
    const b = await db.pod({ partitions: 1 }, [failing()], clock);
    clock.advance(30_001);
    await b.leases.heartbeat();
    expect(await b.jobs.findOne({})).toMatchObject({ status: 'PENDING', attempts: 1, crashes: 0 });
  });

  it('a pod whose lease has less time left than the longest send starts nothing', async () => {
    const clock = new FakeClock();
    const starts: unknown[] = [];
    const pod = await db.pod({ partitions: 1 }, [counting(starts)], clock);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueue(T, 1);
    clock.advance(14_001); // 30 s lease, 15 s longest send, 1 s margin
    await pod.lane.runOnce();
    expect(starts).toEqual([]);
    await pod.leases.heartbeat();
    await pod.drain();
    expect(starts).toEqual([1]);
  });

  it('a pod that stalled past its lease sends no further row when it wakes', async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const a = await db.pod({ partitions: 1 }, [gate.target()], clock);
    await a.leases.heartbeat();
    await a.sideEffect.enqueueMany([1, 2, 3].map((version) => ({ target: T, payload: version, key: 'k', version })));
    const round = a.lane.runOnce();
    await gate.inside;
    clock.advance(31_000);
    gate.release();
    await round;
    await a.lane.runOnce();
    expect(gate.starts).toEqual(['1']);
  });

  it('a mark by a pod whose partition was taken matches nothing, and nothing is sent', async () => {
    const slow = new FakeClock();
    const fast = new FakeClock();
    const starts: unknown[] = [];
    const a = await db.pod({ partitions: 1 }, [counting(starts)], slow);
    await a.leases.heartbeat();
    await a.sideEffect.enqueue(T, 1);
    const b = await db.pod({ partitions: 1 }, [], fast);
    fast.advance(30_001);
    await b.leases.heartbeat(); // a's clock stands still: it still trusts its lease
    await a.lane.runOnce();
    expect(starts).toEqual([]);
    expect(a.eventsOf('partitions_lost')).toHaveLength(1);
  });

  it('an outcome that could not be written is kept and written before anything else of its cell runs', async () => {
    const clock = new FakeClock();
    const starts: unknown[] = [];
    const pod = await db.pod({ partitions: 1 }, [counting(starts)], clock);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueueMany([1, 2].map((version) => ({ target: T, payload: version, key: 'k', version })));
    const deleteMany = pod.jobs.deleteMany.bind(pod.jobs);
    let failures = 0;
    pod.jobs.deleteMany = async (...args) => {
      if (failures++ < 2) throw new Error('the database is gone');
      return deleteMany(...args);
    };
    await pod.lane.runOnce();
    await pod.lane.runOnce();
    expect(starts).toEqual([1]);
    expect(pod.eventsOf('outcome_kept')).toHaveLength(1);
    await pod.drain();
    expect(starts).toEqual([1, 2]);
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('a clean stop writes outcomes, gives the partitions back and takes the pod off the list', async () => {
    const clock = new FakeClock();
    const gate = new Gate();
    const a = await db.pod({ partitions: 4 }, [gate.target()], clock);
    await a.leases.heartbeat();
    await a.sideEffect.enqueue(T, 1);
    const round = a.lane.runOnce();
    await gate.inside;
    const closing = a.close();
    gate.release();
    await Promise.all([closing, round]);
    const b = await db.pod({ partitions: 4 }, [], clock);
    await b.leases.heartbeat();
    expect(b.leases.readable()).toHaveLength(4);
    expect(await b.jobs.countDocuments()).toBe(0);
  });

  it('the database is asked for its time with every third heartbeat, and with the first after a failed one', async () => {
    const clock = new FakeClock();
    const pod = await db.pod({ partitions: 1 }, [], clock);
    const asked = async (beats: number): Promise<number> => {
      const before = clock.syncs;
      for (let beat = 0; beat < beats; beat++) await pod.leases.heartbeat().catch(() => undefined);
      return clock.syncs - before;
    };
    expect(await asked(1)).toBe(1);
    expect(await asked(2)).toBe(0);
    expect(await asked(1)).toBe(1);
    const updateMany = pod.collections.partitions.updateMany.bind(pod.collections.partitions);
    pod.collections.partitions.updateMany = () => Promise.reject(new Error('the database is gone'));
    await asked(1);
    pod.collections.partitions.updateMany = updateMany;
    expect(await asked(1)).toBe(1);
  });
});
