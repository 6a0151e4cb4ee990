import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { BatchAnswer, Job } from '../../src/jobs/jobs.types.js';
import { JobHeldBack, SharedFailure } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';

type Answer = (jobs: readonly Job[]) => BatchAnswer;

describe('the answer of a batch handler', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function podWith(answer: Answer, runs: unknown[][] = []): Promise<TestPod> {
    const batch_handler = async (jobs: readonly Job[]): Promise<BatchAnswer> => {
      runs.push(jobs.map(({ payload }) => payload));
      return answer(jobs);
    };
    const target = { name: T, lane: 'fast', delivery_mode: 'at_most_once', max_in_flight: 20, batch_handler } as const;
    const pod = await db.pod({ partitions: 1 }, [target], new FakeClock());
    await pod.leases.heartbeat();
    return pod;
  }

  const enqueue = (pod: TestPod, payload: string, key: string, version = 0): Promise<unknown> =>
    pod.sideEffect.enqueue(T, payload, { key, version });

  const left = (pod: TestPod) =>
    pod.collections.jobs
      .find({}, { projection: { _id: 0, payload: 1, attempts: 1, status: 1 } })
      .sort({ payload: 1 })
      .toArray();

  /** One answer to `a`, `b` and `c` together, meant for `b`; `d` and `e` are not concerned. */
  const sharedOfThree: Answer = (jobs) => {
    const meant = jobs.filter(({ payload }) => ['a', 'b', 'c'].includes(payload as string));
    const refused = meant.some(({ payload }) => payload === 'b');
    return jobs.map((job) => (refused && meant.includes(job) ? new SharedFailure(new Error('one is bad')) : undefined));
  };

  it('shared by some of its rows, charges the one it is meant for, alone, and loses no other', async () => {
    const runs: unknown[][] = [];
    const pod = await podWith(sharedOfThree, runs);
    for (const payload of 'abcde') await enqueue(pod, payload, payload);
    await pod.drain();
    expect(await left(pod)).toEqual([{ payload: 'b', attempts: 1, status: 'PENDING' }]);
    expect(runs).toEqual([['a', 'b', 'c', 'd', 'e'], ['a'], ['b'], ['c']]);
    const [row] = await pod.collections.jobs.find().toArray();
    expect(row?.last_error).toBe('one is bad');
  });

  it('shared, and the row alone: it is charged, or it would run for ever', async () => {
    const pod = await podWith(() => [new SharedFailure(new Error('bad'))]);
    await enqueue(pod, 'a', 'a');
    await pod.drain();
    expect(await left(pod)).toEqual([{ payload: 'a', attempts: 1, status: 'PENDING' }]);
  });

  it('held back, lets the row run after its predecessor, at no charge', async () => {
    const runs: unknown[][] = [];
    const pod = await podWith(
      (jobs) => jobs.map((_, index) => (index > 0 ? new JobHeldBack('wait') : undefined)),
      runs,
    );
    for (const version of [0, 1, 2]) await enqueue(pod, `a${version}`, 'a', version);
    await pod.drain();
    expect(await left(pod)).toEqual([]);
    expect(runs).toEqual([['a0', 'a1', 'a2'], ['a1', 'a2'], ['a2']]);
  });

  it('held back behind a row that failed, lets it wait for that row, at no charge', async () => {
    const pod = await podWith(() => [new Error('no'), new JobHeldBack('wait')]);
    for (const version of [0, 1]) await enqueue(pod, `a${version}`, 'a', version);
    await pod.drain();
    expect(await left(pod)).toEqual([
      { payload: 'a0', attempts: 1, status: 'PENDING' },
      { payload: 'a1', attempts: 0, status: 'PENDING' },
    ]);
  });

  it('held back, of the first row of its key, charges it: nobody is before it', async () => {
    const pod = await podWith((jobs) => jobs.map(() => new JobHeldBack('wait')));
    for (const key of 'ab') await enqueue(pod, key, key);
    await pod.drain();
    expect(await left(pod)).toMatchObject([{ attempts: 1 }, { attempts: 1 }]);
  });
});
