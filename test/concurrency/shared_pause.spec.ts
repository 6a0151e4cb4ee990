/** Pauses over several pods on one database and one clock: who probes, who follows, and what a late answer may change. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { inTransaction } from '../../src/common/utils/transaction.js';
import { ID_SOURCE } from '../../src/common/ports/ids.js';
import { JobsEvents } from '../../src/jobs/jobs.events.js';
import { JOBS_CONFIG } from '../../src/jobs/jobs.options.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import { POD } from '../../src/jobs/lanes/pod.js';
import { TargetPause } from '../../src/jobs/lanes/target_pause.js';
import type { TargetDoc } from '../../src/jobs/store/jobs.schema.js';
import { pauseByAdmin, resumeByAdmin, type Change } from '../../src/jobs/store/target_pause.store.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const BEAT = 10_000;

/** What every pod of a test sends to. */
class Destination {
  starts: string[] = [];
  answer: (job: Job) => unknown = () => undefined;

  readonly down = (): Error => new TargetUnreachable('connection refused');

  target(options: Partial<JobTargetOptions> = {}): JobTargetOptions {
    const handler = async (job: Job): Promise<void> => {
      this.starts.push(job.id);
      const error = await this.answer(job);
      if (error) throw error;
    };
    return { name: T, lane: 'fast', delivery_mode: 'at_least_once', max_in_flight: 1, handler, ...options };
  }
}

/** A send that answers when told. */
function held(): { inside: Promise<void>; answer: () => Promise<unknown>; end(value?: unknown): void } {
  let enter = (): void => undefined;
  let end = (_value?: unknown): void => undefined;
  const inside = new Promise<void>((resolve) => void (enter = resolve));
  const ended = new Promise<unknown>((resolve) => void (end = resolve));
  return {
    inside,
    answer: () => {
      enter();
      return ended;
    },
    end: (value) => end(value),
  };
}

/** Names of the commands on the shared pauses that `work` sent. */
async function targetCommandsOf(pod: TestPod, work: () => Promise<unknown>): Promise<string[]> {
  const names: string[] = [];
  const look = ({ commandName, command }: { commandName: string; command: Record<string, unknown> }): void => {
    if (command[commandName] === 'job_targets') names.push(commandName);
  };
  const client = pod.connection.getClient();
  client.on('commandStarted', look);
  await work();
  client.off('commandStarted', look);
  return names;
}

describe('a pause shared by several pods', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  const clock = { current: new FakeClock() };

  async function beat(pods: readonly TestPod[]): Promise<void> {
    for (const pod of pods) {
      await pod.leases.heartbeat();
      await pod.pause.refresh();
    }
  }

  async function start(count: number, target: JobTargetOptions): Promise<TestPod[]> {
    clock.current = new FakeClock();
    const pods: TestPod[] = [];
    for (let index = 0; index < count; index++) pods.push(await newPod(target));
    for (let round = 0; round < 3; round++) await beat(pods);
    return pods;
  }

  const newPod = (target: JobTargetOptions): Promise<TestPod> => db.pod({ partitions: 8 }, [target], clock.current);

  /** Time goes by in steps that keep the leases. */
  async function wait(ms: number, pods: readonly TestPod[]): Promise<void> {
    for (let passed = 0; passed < ms; passed += BEAT) {
      clock.current.advance(Math.min(BEAT, ms - passed));
      await beat(pods);
    }
  }

  const enqueue = (pod: TestPod, count: number): Promise<unknown> =>
    pod.sideEffect.enqueueMany(Array.from({ length: count }, (_, index) => ({ target: T, payload: index })));

  const admin = (pod: TestPod, what: typeof pauseByAdmin, reason = 'maintenance'): Promise<Change> =>
    inTransaction(pod.connection, ({ session }) =>
      what(session, pod.collections, { target: T, actor: 'ann', reason, now: pod.now() }),
    );

  const row = async (pod: TestPod): Promise<TargetDoc | null> => pod.collections.targets.findOne({ _id: T });
  const all = (pods: readonly TestPod[]): Promise<number[]> => Promise.all(pods.map((pod) => pod.lane.runOnce()));

  it('three pods with due rows probe once per interval between them, and spend no attempt', async () => {
    const send = new Destination();
    send.answer = send.down;
    const pods = await start(3, send.target());
    await enqueue(pods[0]!, 60);
    await all(pods);
    await beat(pods);
    const found = send.starts.length;
    expect(found).toBeLessThanOrEqual(3); // each may find it down by itself before the first heartbeat
    for (let interval = 1; interval <= 4; interval++) {
      for (let step = 0; step < 3; step++) {
        await wait(BEAT, pods);
        await all(pods);
        await all(pods);
      }
      expect(send.starts).toHaveLength(found + interval);
    }
    expect(await pods[0]!.jobs.countDocuments({ status: 'PENDING', attempts: 0 })).toBe(60);
  });

  it('a pause that one pod found stops the others after their heartbeat', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    expect(send.starts).toHaveLength(1);
    await b.pause.refresh();
    await b.lane.runOnce();
    expect(send.starts).toHaveLength(1);
    expect(b.eventsOf('target_paused')).toMatchObject([{ by: 'engine', reason: 'connection refused', ms: 30_000 }]);
  });

  it('a page under way ends when its pod learns of a pause', async () => {
    const send = new Destination();
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    const first = held();
    send.answer = first.answer;
    await enqueue(a, 40);
    const round = a.lane.runOnce();
    await first.inside;
    await admin(b, pauseByAdmin);
    await a.pause.refresh();
    first.end();
    await round;
    expect(send.starts).toHaveLength(1);
  });

  it('when the holder of the permit dies, another pod probes after its time, not before', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    expect(await a.pause.pass(T)).toBe('probe');
    await a.die();
    expect(await b.pause.pass(T)).toBe('closed');
    await wait(20_000, [b]);
    expect(await b.pause.pass(T)).toBe('closed');
    await wait(10_000, [b]);
    send.answer = () => undefined;
    await b.lane.runOnce();
    expect(await row(b)).toMatchObject({ state: 'open', by: 'engine' });
  });

  it('a pod that has nothing to probe with leaves the permit to one that has', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    expect(await a.pause.pass(T)).toBe('probe');
    a.pause.unused(T);
    await a.pause.written();
    expect(await b.pause.pass(T)).toBe('probe');
    expect(await a.pause.pass(T)).toBe('closed');
  });

  it('a resume by a probe is followed by the other pods within one heartbeat', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    expect(b.pause.look(T)).toBe('probe');
    send.answer = () => undefined;
    await a.lane.runOnce();
    await b.pause.refresh();
    expect(b.pause.look(T)).toBe('open');
    expect(b.eventsOf('target_resumed')).toHaveLength(1);
    for (let round = 0; round < 20; round++) await all([a, b]);
    expect(await a.jobs.countDocuments()).toBe(0);
  });

  it('an admin pause stops all pods, is never probed and survives a restart', async () => {
    const send = new Destination();
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    expect(await admin(a, pauseByAdmin)).toBe('changed');
    await beat([a, b]);
    await enqueue(a, 20);
    await wait(120_000, [a, b]);
    await all([a, b]);
    expect([a.pause.look(T), b.pause.look(T), a.pause.nextProbeMs()]).toEqual(['closed', 'closed', undefined]);
    await a.close();
    await b.close();
    const c = await newPod(send.target());
    await c.leases.heartbeat();
    await c.lane.runOnce(); // before its first look at the pauses in a heartbeat
    await wait(120_000, [c]);
    await c.lane.runOnce();
    expect(send.starts).toEqual([]);
    expect(await admin(c, resumeByAdmin, 'done')).toBe('changed');
    await beat([c]);
    await c.drain();
    expect(send.starts).toHaveLength(20);
  });

  it('an admin resumes a pause of the engine without waiting for a probe', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await beat([a, b]);
    send.answer = () => undefined;
    await admin(b, resumeByAdmin, 'it is back');
    await beat([a, b]);
    for (let round = 0; round < 20; round++) await all([a, b]);
    expect(await a.jobs.countDocuments()).toBe(0);
  });

  it('a run that finds the target down does not touch the pause of an admin, even one its pod had not heard of', async () => {
    const send = new Destination();
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    const send1 = held();
    send.answer = send1.answer;
    await enqueue(a, 1);
    const rounds = all([a, b]);
    await send1.inside;
    await admin(b, pauseByAdmin);
    const before = await row(a);
    send1.end(send.down());
    await rounds;
    expect(await row(a)).toEqual(before);
    await wait(60_000, [a, b]);
    expect([a.pause.look(T), b.pause.look(T)]).toEqual(['closed', 'closed']);
  });

  it('a probe that goes through does not open what an admin paused meanwhile', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    const probe = held();
    send.answer = probe.answer;
    const round = a.lane.runOnce();
    await probe.inside;
    await admin(b, pauseByAdmin);
    probe.end();
    await round;
    expect(await row(a)).toMatchObject({ state: 'paused', by: 'admin' });
    expect(a.pause.look(T)).toBe('closed');
  });

  it('a success of a run that began before the pause does not end it', async () => {
    const send = new Destination();
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    const late = held();
    send.answer = late.answer;
    await enqueue(a, 40);
    const round = a.lane.runOnce();
    await late.inside;
    send.answer = send.down;
    await b.lane.runOnce();
    await a.pause.refresh();
    late.end();
    await round;
    expect(await row(a)).toMatchObject({ state: 'paused', by: 'engine' });
    expect([a.pause.look(T), a.eventsOf('target_resumed')]).toEqual(['closed', []]);
  });

  it('a pod that stalls ten minutes with the success of its probe does not end a pause found since', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    expect(await a.pause.pass(T)).toBe('probe');
    const permit = a.pause.heldProbe(T)!;
    await wait(600_000, [b]); // a sleeps
    await b.lane.runOnce(); // b's probe finds it down still
    const before = await row(b);
    a.pause.up(T, permit);
    await a.pause.written();
    expect(await row(b)).toEqual(before);
    expect(a.pause.look(T)).toBe('closed');
  });

  it('a pod that heard of a later finding takes neither a success nor a failure of its old probe for news', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a, b]);
    expect(await a.pause.pass(T)).toBe('probe');
    const permit = a.pause.heldProbe(T)!;
    await wait(60_000, [a, b]);
    await b.lane.runOnce();
    await beat([a]);
    const before = await row(b);
    expect(a.pause.heldProbe(T)).toBeUndefined();
    const told = a.events.length;
    a.pause.up(T, permit);
    a.pause.down(T, 'old', send.down(), permit);
    a.pause.unused(T, permit);
    await a.pause.written();
    expect(await row(b)).toEqual(before);
    expect(a.events.slice(told)).toEqual([]);
  });

  it('a failure of a run that began before the pause does not move the probe', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target())) as [TestPod];
    a.pause.down(T, 'first', send.down(), 'open');
    await wait(BEAT, [a]);
    await a.pause.written();
    const before = await row(a);
    a.pause.down(T, 'late', send.down(), 'open');
    await a.pause.written();
    expect(await row(a)).toEqual(before);
    expect(a.eventsOf('target_paused')).toHaveLength(1);
  });

  it('rows that were read before this pod found a target down do not undo what it found', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target())) as [TestPod];
    const { targets } = a.collections;
    const find = targets.find.bind(targets) as (...args: unknown[]) => ReturnType<typeof targets.find>;
    targets.find = ((...args: unknown[]) => {
      const cursor = find(...args);
      const toArray = cursor.toArray.bind(cursor);
      cursor.toArray = async () => {
        const rows = await toArray();
        a.pause.down(T, 'row', send.down(), 'open');
        await a.pause.written();
        return rows;
      };
      return cursor;
    }) as typeof targets.find;
    await a.pause.refresh();
    targets.find = find as typeof targets.find;
    expect([a.pause.look(T), a.eventsOf('target_resumed')]).toEqual(['closed', []]);
  });

  it('a finding right after an answered probe stands, though an admin had opened the target before both', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target())) as [TestPod];
    a.pause.down(T, 'row', send.down(), 'open');
    await a.pause.written();
    await wait(30_000, [a]);
    expect(await a.pause.pass(T)).toBe('probe');
    await admin(a, resumeByAdmin);
    a.pause.up(T);
    a.pause.down(T, 'row', send.down(), 'open');
    await a.pause.written();
    expect([a.pause.look(T), (await row(a))?.state]).toEqual(['closed', 'paused']);
  });

  it('cells of one pod that ask for the permit at once cost one command, and a probe two', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a] = (await start(1, send.target())) as [TestPod];
    await enqueue(a, 20);
    await a.lane.runOnce();
    await wait(30_000, [a]);
    const asked = targetCommandsOf(a, () => Promise.all([1, 2, 3].map(() => a.pause.pass(T))));
    expect(await asked).toEqual(['findAndModify']);
    a.pause.unused(T);
    await a.pause.written();
    expect(await targetCommandsOf(a, () => a.lane.runOnce())).toEqual(['findAndModify', 'update']);
    await wait(30_000, [a]);
    send.answer = () => undefined;
    expect(await targetCommandsOf(a, () => a.lane.runOnce())).toEqual(['findAndModify', 'update']);
  });

  it('a pod that could not read the pauses at its start runs nothing until it could', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target())) as [TestPod];
    await admin(a, pauseByAdmin);
    const get = a.module.get.bind(a.module);
    const fresh = new TargetPause(
      get(JOBS_CONFIG),
      a.collections,
      clock.current,
      get(ID_SOURCE),
      get(POD),
      get(JobsEvents),
      get(JobTargetsRegistry),
    );
    const { targets } = a.collections;
    const find = targets.find.bind(targets);
    targets.find = () => {
      throw new Error('the database is gone');
    };
    await fresh.onModuleInit();
    expect(await fresh.pass('another')).toBe('closed');
    targets.find = find;
    expect(await fresh.pass(T)).toBe('closed');
    expect(await fresh.pass('another')).toBe('open');
  });

  it('the heartbeat of a running pod follows what an admin did, and its lanes go on by themselves', async () => {
    const send = new Destination();
    let started = (): void => undefined;
    send.answer = () => started();
    const [a] = (await start(1, send.target())) as [TestPod];
    await admin(a, pauseByAdmin);
    const b = await db.pod({ partitions: 8, workers: 'on' }, [send.target()], clock.current);
    const heard = new Promise<void>((resolve) => {
      b.module.get(JobsEvents).on(({ type }) => type === 'target_resumed' && resolve());
    });
    expect(b.pause.look(T)).toBe('closed');
    await a.close();
    await admin(b, resumeByAdmin);
    const run = new Promise<void>((resolve) => void (started = resolve));
    await enqueue(b, 1);
    // The loops wait on the test's clock: move it until they have had their turn.
    const moved = setInterval(() => clock.current.advance(1_000), 5);
    await Promise.all([heard, run]);
    clearInterval(moved);
  });

  it('a clean stop waits for what was found out to be written', async () => {
    const send = new Destination();
    const [a, b] = (await start(2, send.target())) as [TestPod, TestPod];
    const { targets } = a.collections;
    const updateOne = targets.updateOne.bind(targets) as (...args: unknown[]) => Promise<never>;
    targets.updateOne = (async (...args: unknown[]) => {
      for (let ping = 0; ping < 100; ping++) await row(b);
      return updateOne(...args);
    }) as typeof targets.updateOne;
    a.pause.down(T, 'row', send.down(), 'open');
    await a.close();
    expect(await row(b)).toMatchObject({ state: 'paused', by: 'engine' });
  });

  it('two pods that find it down at once leave one pause, and both know it', async () => {
    const send = new Destination();
    send.answer = send.down;
    const pods = (await start(2, send.target())) as [TestPod, TestPod];
    await enqueue(pods[0], 20);
    await all(pods);
    const { token } = (await row(pods[0]))!;
    await wait(30_000, pods);
    const gates = await Promise.all(pods.map((pod) => pod.pause.pass(T)));
    expect([...gates].sort()).toEqual(['closed', 'probe']);
    expect((await row(pods[0]))!.token).toBe(token);
  });

  it('a target that asks for a longer rest gets it from every pod', async () => {
    const send = new Destination();
    send.answer = () => new TargetUnreachable('maintenance', { retry_after_ms: 90_000 });
    const pods = await start(2, send.target());
    await enqueue(pods[0]!, 20);
    await pods[0]!.lane.runOnce();
    for (let passed = 0; passed < 80_000; passed += BEAT) {
      await wait(BEAT, pods);
      await all(pods);
    }
    expect(send.starts).toHaveLength(1);
    await wait(BEAT, pods);
    await all(pods);
    expect(send.starts).toHaveLength(2);
  });

  it('a finding that could not be written ends no run, is written later, and no probe goes before that', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a] = (await start(1, send.target())) as [TestPod];
    await enqueue(a, 5);
    const { targets } = a.collections;
    const updateOne = targets.updateOne.bind(targets);
    targets.updateOne = () => Promise.reject(new Error('the database is gone'));
    await a.lane.runOnce();
    expect([a.pause.look(T), await row(a)]).toEqual(['closed', null]);
    await wait(30_000, [a]); // the heartbeat's own read works: it must not take the missing row for "open"
    expect(await a.pause.pass(T)).toBe('closed');
    targets.updateOne = updateOne;
    await a.pause.refresh();
    await a.pause.written();
    expect(await row(a)).toMatchObject({ state: 'paused', by: 'engine' });
    expect(await a.pause.pass(T)).toBe('probe');
    expect(a.eventsOf('outcome_kept')).toEqual([]);
  });

  it('a database that is away when the permit is asked for means "not now", and nothing else', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a] = (await start(1, send.target())) as [TestPod];
    await enqueue(a, 5);
    await a.lane.runOnce();
    await wait(30_000, [a]);
    const { targets } = a.collections;
    const findOneAndUpdate = targets.findOneAndUpdate.bind(targets);
    targets.findOneAndUpdate = (() =>
      Promise.reject(new Error('the database is gone'))) as unknown as typeof targets.findOneAndUpdate;
    await a.lane.runOnce();
    expect(send.starts).toHaveLength(1);
    expect(a.eventsOf('round_failed')).toEqual([]);
    targets.findOneAndUpdate = findOneAndUpdate;
    await a.lane.runOnce();
    expect(send.starts).toHaveLength(2);
  });

  it('50 rows that are due when a target comes back start a few at a time, twice as many with every answer of all', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target({ max_in_flight: 100 }))) as [TestPod];
    await admin(a, pauseByAdmin);
    await beat([a]);
    await enqueue(a, 50);
    let answers = 0;
    let running = 0;
    const excess: number[] = [];
    let most = 0;
    let finish = (): void => undefined;
    const finished = new Promise<void>((resolve) => void (finish = resolve));
    send.answer = async () => {
      running++;
      most = Math.max(most, running);
      if (running > answers + 1) excess.push(running);
      await new Promise((resolve) => setImmediate(resolve));
      running--;
      if (++answers === 50) finish();
    };
    a.lane.start();
    await admin(a, resumeByAdmin);
    await beat([a]);
    await finished;
    expect(excess).toEqual([]);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(32);
  });

  it('while the first row of a ramp is under way no other starts; after its answer two run side by side', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target({ max_in_flight: 1 }))) as [TestPod];
    await admin(a, pauseByAdmin);
    await beat([a]);
    await enqueue(a, 50);
    const sends = [held(), held(), held()] as const;
    let next = 0;
    send.answer = () => sends[next++]?.answer();
    a.lane.start();
    await admin(a, resumeByAdmin);
    await beat([a]);
    await sends[0].inside;
    for (let ping = 0; ping < 50; ping++) await row(a); // time enough for others to start, if they would
    expect(send.starts).toHaveLength(1);
    sends[0].end();
    await Promise.all([sends[1].inside, sends[2].inside]);
    for (const each of sends) each.end();
  });

  it('the allowance of the long lane: one while it rests, then doubling with answers or time, then all', async () => {
    const send = new Destination();
    const target = send.target({ lane: 'long', concurrency: 5 });
    delete target.max_in_flight;
    const [a] = (await start(1, target)) as [TestPod];
    expect(a.pause.allowance(T)).toBe(Infinity);
    a.pause.down(T, 'row', send.down());
    expect(a.pause.allowance(T)).toBe(1);
    await a.pause.written();
    await wait(30_000, [a]);
    expect(await a.pause.pass(T)).toBe('probe');
    a.pause.up(T);
    expect([a.pause.look(T), a.pause.allowance(T)]).toEqual(['open', 1]);
    a.pause.up(T);
    expect(a.pause.allowance(T)).toBe(2);
    clock.current.advance(30_000);
    expect(a.pause.allowance(T)).toBe(4);
    for (let answer = 0; answer < 4; answer++) a.pause.up(T);
    expect(a.pause.allowance(T)).toBe(Infinity);
    expect(a.eventsOf('target_ramping').map(({ places }) => places)).toEqual([2, Infinity]);
  });

  it('a target that went down again while it came back starts its next ramp at one', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target())) as [TestPod];
    await admin(a, pauseByAdmin);
    await beat([a]);
    await admin(a, resumeByAdmin);
    await beat([a]);
    for (let answer = 0; answer < 3; answer++) a.pause.up(T, 'open');
    expect(a.pause.allowance(T)).toBe(4);
    a.pause.down(T, 'row', send.down(), 'open');
    await a.pause.written();
    await admin(a, resumeByAdmin);
    await beat([a]);
    expect(a.pause.allowance(T)).toBe(1);
  });

  it('costs one query per heartbeat, and nothing per row or batch of an open target', async () => {
    const send = new Destination();
    const [a] = (await start(1, send.target({ max_in_flight: 100 }))) as [TestPod];
    expect(await a.commandsOf(() => a.pause.refresh())).toEqual(['find']);
    await enqueue(a, 8);
    expect(await targetCommandsOf(a, () => a.drain())).toEqual([]);
    expect(send.starts).toHaveLength(8);
  });

  it('a paused target whose probe is due and that has no row asks for no permit and does not spin', async () => {
    const send = new Destination();
    send.answer = send.down;
    const [a] = (await start(1, send.target({ delivery_mode: 'at_most_once' }))) as [TestPod];
    await enqueue(a, 1);
    await a.lane.runOnce();
    await a.jobs.deleteMany({});
    await wait(30_000, [a]);
    await a.lane.runOnce(); // finds the cell empty and gives the permit back
    expect(a.pause.look(T)).toBe('probe');
    expect(await a.commandsOf(() => a.lane.runOnce())).toEqual(['find']);
    expect(a.pause.nextProbeMs()).toBeUndefined();
  });
});
