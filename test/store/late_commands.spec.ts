/** Commands that were given up, which the database carries out all the same, later (invariants 3 and 5). */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { Cell } from '../../src/jobs/lanes/cell.js';
import type { JobsCollections } from '../../src/jobs/store/collections.js';
import { markInflight, type Marked } from '../../src/jobs/store/partition_lease.store.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const database = new TestDatabase();
afterEach(() => database.reset());
afterAll(() => database.drop());

interface HeldBack {
  readonly sent: Promise<void>;
  carryOut(): Promise<unknown>;
}

/** The next update of partitions never answers. */
function holdBack({ collections: { partitions } }: TestPod): HeldBack {
  const updateMany = partitions.updateMany.bind(partitions);
  let late: (() => Promise<unknown>) | undefined;
  const sent = new Promise<void>((resolve) => {
    partitions.updateMany = (...args) => {
      partitions.updateMany = updateMany;
      late = () => updateMany(...args);
      resolve();
      return new Promise(() => undefined);
    };
  });
  return { sent, carryOut: () => late!() };
}

const untilOf = async (pod: TestPod): Promise<number[]> =>
  (await pod.collections.partitions.find().toArray()).map(({ lease_until }) => lease_until?.getTime() ?? 0);

/** A heartbeat that waits for its answer for so long that it gives up. */
async function givenUp(pod: TestPod, clock: FakeClock): Promise<HeldBack> {
  const command = holdBack(pod);
  const beat = pod.leases.heartbeat();
  const rejected = expect(beat).rejects.toThrow('no answer to a heartbeat');
  await command.sent;
  clock.advance(10_000);
  await rejected;
  return command;
}

it('a renewal that is carried out late shortens no lease that was renewed since', async () => {
  const clock = new FakeClock();
  const pod = await database.pod({}, [], clock);
  await pod.leases.heartbeat();
  const renewal = await givenUp(pod, clock);
  await pod.leases.heartbeat();
  const until = await untilOf(pod);
  await renewal.carryOut();
  expect(await untilOf(pod)).toEqual(until);
  expect(until).toEqual(Array(4).fill(clock.now().getTime() + 30_000));
});

it('what a late take wins is served only when its lease was renewed', async () => {
  const clock = new FakeClock();
  const pod = await database.pod({}, [], clock);
  const take = await givenUp(pod, clock);
  // Between the renewal of the next heartbeat and its look.
  const { workers } = pod.collections;
  const updateOne = workers.updateOne.bind(workers);
  workers.updateOne = async (...sent) => {
    workers.updateOne = updateOne;
    await take.carryOut();
    return updateOne(...sent);
  };
  await pod.leases.heartbeat();
  const trusted = pod.leases.readable().map(({ deadline }) => deadline - clock.monotonic());
  const until = await untilOf(pod);
  for (const ms of trusted) expect(ms).toBeLessThanOrEqual(Math.min(...until) - clock.now().getTime());
  await pod.leases.heartbeat();
  expect(pod.leases.readable()).toHaveLength(4);
  expect(await untilOf(pod)).toEqual(Array(4).fill(clock.now().getTime() + 30_000));
});

describe('a mark of the fast lane', () => {
  const T = 'test:send';
  const handled: unknown[] = [];
  const target = (options: Partial<JobTargetOptions> = {}): JobTargetOptions =>
    ({
      name: T,
      lane: 'fast',
      handler: async ({ payload }) => void handled.push(payload),
      ...options,
    }) as JobTargetOptions;

  afterEach(() => void handled.splice(0));

  async function owner(options: Partial<JobTargetOptions> = {}, clock = new FakeClock()): Promise<TestPod> {
    const pod = await database.pod({ partitions: 1, hints: 'off' }, [target(options)], clock);
    await pod.leases.heartbeat();
    return pod;
  }

  const marksOf = async (pod: TestPod): Promise<string[]> =>
    (await pod.collections.partitions.findOne({}))!.inflight.map(({ token }) => token);

  /** Marks for one cell of a pod, as its rounds ask for them. */
  async function asker(): Promise<{ pod: TestPod; ask(token: string): () => Promise<Marked>; cell: Cell }> {
    const pod = await owner();
    const [owned] = pod.leases.readable();
    const cell = new Cell(pod.module.get(JobTargetsRegistry).require(T), owned!, 100);
    const ask = (token: string) => {
      const mark = { target: T, mode: 'at_most_once' as const, token, ids: [], at: pod.now() };
      const request = { term: owned!.term, rev: owned!.rev, mark, replaces: cell.willMark(token) };
      return async () => (await markInflight(pod.collections, [request], pod.now()))[0]!;
    };
    return { pod, ask, cell };
  }

  it('that is carried out late does not replace the one that was written since', async () => {
    const { pod, ask, cell } = await asker();
    expect(await ask('first')()).toEqual({ result: 'marked' });
    cell.hasMarked('first');
    const late = ask('late');
    expect(await ask('next')()).toEqual({ result: 'marked' });
    cell.hasMarked('next');
    expect(await late()).toEqual({ result: 'occupied', by: 'next' });
    expect(await marksOf(pod)).toEqual(['next']);
  });

  it('that is carried out late does not come where none stood when it was asked for', async () => {
    const { pod, ask } = await asker();
    const late = ask('late');
    expect(await ask('next')()).toEqual({ result: 'marked' });
    await late();
    expect(await marksOf(pod)).toEqual(['next']);
  });

  it('replaces those before it whose answers were lost, whichever of them were written', async () => {
    const { pod, ask, cell } = await asker();
    await ask('first')();
    cell.hasMarked('first');
    ask('never written');
    await ask('written')();
    expect(await ask('next')()).toEqual({ result: 'marked' });
    expect(await marksOf(pod)).toEqual(['next']);
  });

  it('names to the database the last one that was answered, and those asked for since', async () => {
    const pod = await owner();
    await pod.sideEffect.enqueueMany([1, 2, 3].map((version) => ({ target: T, payload: version, key: 'k', version })));
    const named: number[] = [];
    pod.connection.getClient().on('commandStarted', ({ command }) => {
      if (command['update'] !== 'job_partitions') return;
      named.push(command['updates'][0].q.inflight.$not.$elemMatch.token.$nin.length);
      if (named.length === 1) loseMark(pod, 'written');
    });
    await pod.lane.runOnce();
    await pod.drain();
    expect(handled).toEqual([1, 2, 3]);
    expect(named).toEqual([0, 1, 2, 1]);
  });

  it('stands while its batch runs, whatever comes late, and no cell is shut out by its own', async () => {
    const fate = fc.constantFrom('answered', 'answer lost', 'late', 'never');
    const step = fc.record({ fate, delay: fc.nat({ max: 3 }) });
    const run = async (steps: { fate: string; delay: number }[]): Promise<void> => {
      await database.reset();
      const { pod, ask, cell } = await asker();
      const late: { left: number; write(): Promise<Marked> }[] = [];
      for (const [index, { fate, delay }] of steps.entries()) {
        const token = `mark ${index}`;
        const write = ask(token);
        if (fate === 'late') late.push({ left: delay, write });
        if (fate === 'answer lost') await write();
        if (fate === 'answered') {
          expect(await write()).toEqual({ result: 'marked' });
          cell.hasMarked(token);
        }
        for (const each of late) if (each.left-- === 0) await each.write();
        if (fate === 'answered') expect(await marksOf(pod)).toEqual([token]);
      }
    };
    await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 3, maxLength: 8 }), run), { numRuns: 20 });
  });

  /** What becomes of the next mark of the pod; its answer is lost in any case. */
  function loseMark({ collections: { partitions } }: TestPod, fate: 'written' | 'not written' | 'late'): HeldBack {
    const updateOne = partitions.updateOne.bind(partitions);
    let late: (() => Promise<unknown>) | undefined;
    const sent = new Promise<void>((resolve) => {
      partitions.updateOne = async (...args: Parameters<JobsCollections['partitions']['updateOne']>) => {
        partitions.updateOne = updateOne;
        late = () => updateOne(...args);
        if (fate === 'written') await late();
        resolve();
        throw new Error('the connection is gone');
      };
    });
    return { sent, carryOut: () => late!() };
  }

  it.each(['written', 'not written'] as const)('whose answer was lost, %s: its rows are sent once', async (fate) => {
    const pod = await owner();
    await pod.sideEffect.enqueueMany([1, 2].map((version) => ({ target: T, payload: version, key: 'k', version })));
    loseMark(pod, fate);
    await pod.lane.runOnce();
    expect(pod.eventsOf('round_failed')).toHaveLength(1);
    expect(handled).toEqual([]);
    await pod.drain();
    expect(handled).toEqual([1, 2]);
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('that comes late does not hide from a takeover the rows that were sent meanwhile', async () => {
    const clock = new FakeClock();
    const run: { late?: HeldBack; dead?: Promise<void>; inside?: () => void } = {};
    const inside = new Promise<void>((resolve) => void (run.inside = resolve));
    const handler = async ({ payload }: { payload: unknown }): Promise<void> => {
      handled.push(payload);
      await run.late!.carryOut();
      run.inside!();
      await new Promise(() => undefined);
    };
    const first = await owner({ handler } as Partial<JobTargetOptions>, clock);
    await first.sideEffect.enqueue(T, 'marked late', { key: 'b' });
    run.late = loseMark(first, 'late');
    await first.lane.runOnce();
    await first.sideEffect.enqueue(T, 'sent', { key: 'a' });
    void first.lane.runOnce();
    await inside;
    expect(handled).toEqual(['sent']);
    await first.die();
    clock.advance(30_001);
    const second = await owner({}, clock);
    await second.drain();
    expect(handled).toEqual(['sent', 'marked late']);
    expect(await second.jobs.find({}).toArray()).toMatchObject([{ payload: 'sent', status: 'DEAD' }]);
  });

  it('that somebody else wrote in the place of a cell ends the term, and is judged by the next', async () => {
    const clock = new FakeClock();
    const pod = await owner({}, clock);
    await pod.sideEffect.enqueueMany(['a', 'b'].map((key) => ({ target: T, payload: key, key })));
    const ids = (await pod.jobs.find({ payload: 'a' }).toArray()).map(({ _id }) => _id);
    const mark = { target: T, mode: 'at_most_once' as const, token: 'of somebody', ids, at: pod.now() };
    await pod.collections.partitions.updateOne({}, { $set: { inflight: [mark] } });
    for (let round = 0; round < 3; round++) await pod.lane.runOnce();
    expect(handled).toEqual([]);
    const [failed, ...more] = pod.eventsOf('round_failed');
    expect(String(failed!.error)).toContain('the mark of somebody, which this cell did not write, stands in its place');
    expect(more).toEqual([]);
    expect(pod.eventsOf('partitions_lost')).toHaveLength(1);
    clock.advance(30_001);
    await pod.leases.heartbeat();
    await pod.drain();
    expect(handled).toEqual(['b']);
    expect(await pod.jobs.find({}).toArray()).toMatchObject([{ payload: 'a', status: 'DEAD' }]);
  });
});
