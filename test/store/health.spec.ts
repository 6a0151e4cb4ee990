/** Causes each problem that the health check is there to notice, on a clock that the test moves. */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { RunLoop } from '../../src/common/run_loop.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import type { JobLane } from '../../src/jobs/jobs.types.js';
import { EngineHealth } from '../../src/jobs/observability/engine_health.js';
import { EngineLoops } from '../../src/jobs/observability/engine_loops.js';
import { OwnershipCheck } from '../../src/jobs/observability/ownership_check.js';
import * as store from '../../src/jobs/store/health.store.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const db = new TestDatabase();
let clock: FakeClock;

const FAST = { name: 'mail:send', lane: 'fast', handler: () => Promise.resolve() } as const;
const LONG = { name: 'report:make', lane: 'long', handler: () => Promise.resolve() } as const;
const TWO_MINUTES = 120_000;
const TICK = 10_000;

const healthOf = (pod: TestPod): EngineHealth => pod.module.get(EngineHealth);
const problemsOf = (pod: TestPod): string[] => Object.keys(healthOf(pod).check().details.problems);

const podOf = (options: JobsModuleOptions = {}, targets: (typeof FAST | typeof LONG)[] = [FAST, LONG]) =>
  db.pod(options, targets, clock);

/** Time goes by as it does for a live pod: heartbeats of `alive`, health rounds of `watcher`. */
async function live(watcher: TestPod, ms: number, alive: TestPod[] = []): Promise<void> {
  for (let gone = 0; gone < ms; gone += TICK) {
    clock.advance(TICK);
    for (const pod of alive) await pod.leases.heartbeat();
    await healthOf(watcher).runOnce();
  }
}

function row(target: string, lane: JobLane, more: Partial<JobDoc> = {}): JobDoc {
  const _id = new mongoose.Types.ObjectId();
  const id = _id.toHexString();
  return {
    _id,
    code: target,
    target,
    lane,
    order_key: id,
    partition: 0,
    version: 0,
    payload: null,
    dedupe_key: id,
    status: 'PENDING',
    attempts: 0,
    crashes: 0,
    priority: 2,
    run_at: clock.now(),
    next_run_at: clock.now(),
    bytes: 100,
    created_at: clock.now(),
    updated_at: clock.now(),
    ...more,
  };
}

beforeEach(() => {
  clock = new FakeClock();
});
afterEach(() => db.reset());
afterAll(() => db.drop());

describe('a healthy engine', () => {
  it('is up, and asks the database one command a minute while nothing waits', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    const commands = await pod.commandsOf(() => live(pod, 10 * 60_000));
    expect(commands.length).toBeLessThanOrEqual(10);
    expect(healthOf(pod).check()).toMatchObject({ status: 'up', details: { problems: {} } });
    expect(pod.eventsOf('health_changed')).toEqual([]);
  });

  it('is up with a backlog of targets it knows, and asks a few commands for it', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    await pod.jobs.insertMany(Array.from({ length: 500 }, (_, at) => row(FAST.name, 'fast', { partition: at % 4 })));
    await pod.jobs.insertMany(Array.from({ length: 500 }, () => row(LONG.name, 'long')));
    clock.advance(TICK);
    const commands = await pod.commandsOf(() => healthOf(pod).runOnce());
    expect(commands).toEqual(['aggregate', 'aggregate', 'find']);
    await live(pod, TWO_MINUTES, [pod]);
    expect(problemsOf(pod)).toEqual([]);
  });

  it('check() itself sends no command', async () => {
    const pod = await podOf();
    expect(await pod.commandsOf(async () => void healthOf(pod).check())).toEqual([]);
  });
});

describe('a backlog whose partition has no live owner', () => {
  it('degrades whoever still lives within two minutes of the owner’s death, and ends when somebody takes it', async () => {
    const owner = await podOf();
    const other = await podOf({ workers: 'off' });
    await owner.leases.heartbeat();
    await other.sideEffect.enqueue(FAST.name, 1);
    await live(other, 60_000, [owner]);
    expect(problemsOf(other)).toEqual([]);
    await owner.die();
    await live(other, TWO_MINUTES);
    const report = healthOf(other).check();
    expect(report.status).toBe('degraded');
    expect(report.details.problems.no_owner).toMatchObject({ count: 1 });
    expect(other.eventsOf('health_changed').filter((event) => event.problem === 'no_owner')).toMatchObject([
      { state: 'began' },
    ]);
    const next = await podOf();
    await live(other, 90_000, [next]);
    expect(problemsOf(other)).toEqual([]);
    expect(other.eventsOf('health_changed').at(-1)).toMatchObject({ state: 'ended' });
  });

  it('is none where the ownerless partition has nothing due', async () => {
    const pod = await podOf({ workers: 'off' });
    await pod.sideEffect.enqueue(FAST.name, 1, { delay_ms: 3_600_000 });
    await live(pod, TWO_MINUTES);
    expect(problemsOf(pod)).not.toContain('no_owner');
  });

  it('a pod that only enqueues follows the database’s clock all the same', async () => {
    const pod = await podOf({ workers: 'off' });
    const before = clock.syncs;
    await live(pod, TWO_MINUTES);
    expect(clock.syncs).toBeGreaterThan(before);
  });

  it('is none yet when it was seen once: a partition changes hands now and then', async () => {
    const pod = await podOf({ workers: 'off' });
    await pod.sideEffect.enqueue(FAST.name, 1);
    clock.advance(20_000);
    expect((await pod.commandsOf(() => healthOf(pod).runOnce())).length).toBeGreaterThan(0);
    expect(problemsOf(pod)).toEqual([]);
    await live(pod, 20_000);
    expect(problemsOf(pod)).toContain('no_owner');
  });
});

describe('names that no live pod knows', () => {
  it.each<JobLane>(['fast', 'long'])('a %s row’s target degrades within two minutes, by name', async (lane) => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    await pod.jobs.insertOne(row('gone:target', lane));
    await live(pod, TWO_MINUTES, [pod]);
    expect(healthOf(pod).check().details.problems.unknown_target).toMatchObject({ count: 1 });
    expect(healthOf(pod).check().details.problems.unknown_target?.detail).toContain('gone:target');
  });

  it('a row that a pod left RUNNING counts as well, once its lease is long gone', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    const left = { status: 'RUNNING', lease_until: clock.now(), claim_token: 'x', claimed_by: 'x' } as const;
    await pod.jobs.insertOne(row('gone:target', 'long', left));
    await live(pod, 2 * TWO_MINUTES, [pod]);
    expect(problemsOf(pod)).toEqual(['unknown_target']);
  });

  it('is none while another live pod knows the name, and one when that pod is gone', async () => {
    const pod = await podOf({}, [FAST]);
    const knows = await podOf({}, [LONG]);
    await pod.jobs.insertOne(row(LONG.name, 'long'));
    await live(pod, TWO_MINUTES, [pod, knows]);
    expect(problemsOf(pod)).toEqual([]);
    await knows.die();
    await live(pod, TWO_MINUTES, [pod]);
    expect(problemsOf(pod)).toEqual(['unknown_target']);
  });

  it('is none while a live pod does not say what it knows: one of an older version', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    const facts = { host: 'h', version: 'v', started_at: clock.now(), lanes: ['fast' as const] };
    await pod.collections.workers.insertOne({
      pod_id: 'old',
      heartbeat_at: new Date(clock.now().getTime() + 1e6),
      ...facts,
    });
    await pod.jobs.insertOne(row('gone:target', 'fast'));
    await live(pod, TWO_MINUTES, [pod]);
    expect(problemsOf(pod)).not.toContain('unknown_target');
  });

  it('a pod that only enqueues does not count as one that knows', async () => {
    const pod = await podOf({ workers: 'off' });
    await pod.sideEffect.enqueue(LONG.name, 1);
    await live(pod, TWO_MINUTES);
    expect(problemsOf(pod)).toContain('unknown_target');
  });

  it('names of other sources count: enabled schedules', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    pod.module.get(OwnershipCheck).addSource(() => Promise.resolve(['schedule:gone', LONG.name]));
    await live(pod, TWO_MINUTES, [pod]);
    expect(healthOf(pod).check().details.problems.unknown_target).toMatchObject({ count: 1 });
  });

  it('pods tell their names with each heartbeat', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    expect(await pod.collections.workers.findOne({})).toMatchObject({ targets: [FAST.name, LONG.name] });
  });
});

describe('a loop whose last good round is old', () => {
  const loopOf = (step: () => Promise<number>) =>
    new RunLoop({ name: 'probed', clock, step, errorDelayMs: 1_000, onError: () => undefined });

  it.each<[string, () => Promise<number>]>([
    ['hangs', () => new Promise(() => undefined)],
    ['fails every time', () => Promise.reject(new Error('no'))],
  ])('degrades within two minutes when its step %s', async (_, step) => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    const loop = loopOf(step);
    pod.module.get(EngineLoops).add(loop);
    loop.start();
    await live(pod, TWO_MINUTES, [pod]);
    expect(healthOf(pod).check().details.problems.loop_stalled).toMatchObject({ count: 1 });
    expect(healthOf(pod).check().details.problems.loop_stalled?.detail).toContain('probed');
    void loop.stop();
    expect(problemsOf(pod)).toEqual([]);
  });

  it('is none for one that waits as long as its step asked', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    const loop = loopOf(() => Promise.resolve(600_000));
    pod.module.get(EngineLoops).add(loop);
    loop.start();
    await live(pod, 5 * 60_000, [pod]);
    expect(problemsOf(pod)).toEqual([]);
    await loop.stop();
  });
});

describe('a blocked event loop', () => {
  it('degrades at the next look, and is over after the window', async () => {
    const pod = await podOf({ workers: 'off', health: { blocked_ms: 300 } });
    await eventLoopTurns(100); // the watch needs one turn to compare with
    const until = performance.now() + 600;
    while (performance.now() < until); // a handler that computes
    await eventLoopTurns(100);
    expect(healthOf(pod).check().details.event_loop_blocked_ms).toBeGreaterThan(300);
    expect(problemsOf(pod)).toEqual(['event_loop_blocked']);
    await live(pod, TWO_MINUTES);
    expect(problemsOf(pod)).toEqual([]);
  });
});

/** Turns of the event loop with its timers, so that the watch measures what was. */
async function eventLoopTurns(ms: number): Promise<void> {
  const until = performance.now() + ms;
  while (performance.now() < until) await new Promise((resolve) => setTimeout(resolve, 1));
}

describe('a database that is away', () => {
  it('degrades within two minutes, is told once, again after five minutes, and is over when it answers', async () => {
    const pod = await podOf();
    await pod.leases.heartbeat();
    await live(pod, 60_000, [pod]);
    const { jobs } = pod.collections;
    const { aggregate } = jobs;
    jobs.aggregate = () => {
      throw new Error('mongodb://me:hunter2@db is gone');
    };
    await live(pod, TWO_MINUTES);
    expect(problemsOf(pod)).toContain('database_unreachable');
    await live(pod, TWO_MINUTES);
    const told = (): string[] =>
      pod.eventsOf('health_changed').flatMap(({ problem, state }) => (problem === 'database_unreachable' ? state : []));
    expect(told()).toEqual(['began']);
    expect(JSON.stringify(healthOf(pod).check())).not.toContain('hunter2');
    await live(pod, TWO_MINUTES);
    expect(told()).toEqual(['began', 'lasts']);
    jobs.aggregate = aggregate;
    await live(pod, TWO_MINUTES, [pod]);
    expect(told()).toEqual(['began', 'lasts', 'ended']);
    expect(problemsOf(pod)).toEqual([]);
  });

  it('is noticed when it never answers, and does not hold up the shutdown', async () => {
    const pod = await podOf();
    pod.collections.jobs.aggregate = (() => ({ toArray: () => new Promise(() => undefined) })) as never;
    const round = healthOf(pod).runOnce();
    await clock.armed(TICK);
    clock.advance(TICK);
    await round;
    expect(problemsOf(pod)).toEqual(['database_unreachable']);
    clock.advance(60_000);
    const hanging = healthOf(pod).runOnce();
    await clock.armed(TICK);
    await healthOf(pod).stop();
    await hanging;
  });
});

describe('the questions', () => {
  it('names on rows: one command per name and one more, however many rows there are', async () => {
    const pod = await podOf();
    const names = ['a:1', 'b:2', 'c:3'];
    await pod.jobs.insertMany(names.flatMap((name) => Array.from({ length: 200 }, () => row(name, 'fast'))));
    const found = await store.namesOnRows(pod.collections, { most: 10 });
    expect(found).toEqual({ fast: names, long: [], abandoned: [], complete: true });
    const commands = await pod.commandsOf(() => store.namesOnRows(pod.collections, { most: 10 }));
    expect(commands).toHaveLength(names.length + 1);
  });

  it('names on rows: says so when there are more than were asked for', async () => {
    const pod = await podOf();
    await pod.jobs.insertMany(['a', 'b', 'c', 'd'].map((name) => row(name, 'long')));
    const found = await store.namesOnRows(pod.collections, { most: 2 });
    expect(found.complete).toBe(false);
    expect(found.long).toEqual(['a', 'b', 'c']);
  });

  it('names on rows: DEAD and finished rows wait for nobody', async () => {
    const pod = await podOf();
    await pod.jobs.insertMany([row('x', 'fast', { status: 'DEAD' }), row('y', 'long', { status: 'DONE' })]);
    expect(await store.namesOnRows(pod.collections, { most: 5 })).toMatchObject({ fast: [], long: [] });
  });

  it('the oldest due row of a target: of the partitions asked for, and only of rows that are due', async () => {
    const pod = await podOf();
    const at = (seconds: number) => new Date(clock.now().getTime() - seconds * 1_000);
    await pod.jobs.insertMany([
      row(FAST.name, 'fast', { partition: 0, next_run_at: at(10) }),
      row(FAST.name, 'fast', { partition: 1, next_run_at: at(30) }),
      row(FAST.name, 'fast', { partition: 3, next_run_at: at(90) }),
      row(FAST.name, 'fast', { partition: 2, next_run_at: at(-50) }),
      row(LONG.name, 'long', { priority: 3, next_run_at: at(5) }),
      row(LONG.name, 'long', { priority: 1, next_run_at: at(70) }),
    ]);
    const ask = (partitions: number[]) =>
      store.oldestDueFast(pod.collections, { target: FAST.name, partitions, now: clock.now() });
    expect(await ask([0, 1, 2])).toEqual(at(30));
    expect(await ask([2])).toBeUndefined();
    expect(await store.oldestDueLong(pod.collections, LONG.name, clock.now())).toEqual(at(70));
    expect(await store.oldestDueLong(pod.collections, 'none', clock.now())).toBeUndefined();
  });

  it('counts per state stop at their limit', async () => {
    const pod = await podOf();
    await pod.jobs.insertMany(Array.from({ length: 30 }, () => row(FAST.name, 'fast')));
    await pod.jobs.insertMany(Array.from({ length: 3 }, () => row(FAST.name, 'fast', { status: 'DEAD' })));
    const counts = await store.countStates(pod.collections, ['PENDING', 'RUNNING', 'DEAD'], 20);
    expect([...counts]).toEqual([
      ['PENDING', 20],
      ['RUNNING', 0],
      ['DEAD', 3],
    ]);
  });
});
