/** Claims of the long lane while the database fails: what was won is run, or given back, whatever else of the round fails. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { Job } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';
const ALONE = 'test:alone';

describe('claims of the long lane', () => {
  const db = new TestDatabase();
  let seen: string[];
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function pod(): Promise<TestPod> {
    seen = [];
    const handler = async (job: Job): Promise<void> => void seen.push(job.payload as string);
    const targets: JobTargetOptions[] = [
      { name: T, lane: 'long', delivery_mode: 'at_most_once', handler },
      { name: ALONE, lane: 'long', exclusive: true, handler },
    ];
    return db.pod({}, targets);
  }

  /** The `nth` call of a method of the collection fails; it is carried out before, or not at all. */
  function failAt(
    a: TestPod,
    method: 'updateMany' | 'findOneAndUpdate' | 'find',
    nth: number,
    carriedOut = true,
  ): void {
    const jobs = a.jobs as unknown as Record<string, (...args: unknown[]) => unknown>;
    const real = jobs[method]!.bind(a.jobs);
    let calls = 0;
    jobs[method] = (...args) => {
      if (++calls !== nth) return real(...args);
      jobs[method] = real;
      if (!carriedOut) throw new Error('lost');
      return Promise.resolve(real(...args)).then(() => Promise.reject(new Error('lost')));
    };
  }

  it('of a batch are not forgotten when an exclusive claim of the same round fails', async () => {
    const a = await pod();
    await a.sideEffect.enqueueMany([
      { target: T, payload: 'one of a batch' },
      { target: ALONE, payload: 'alone', code: 'x' },
    ]);
    failAt(a, 'findOneAndUpdate', 1);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    await a.longLane.runOnce();
    expect(seen).toHaveLength(2);
    expect(new Set(seen)).toEqual(new Set(['alone', 'one of a batch']));
  });

  it('of an exclusive code are not forgotten when the next one fails', async () => {
    const a = await pod();
    await a.sideEffect.enqueueMany(['x', 'y'].map((code) => ({ target: ALONE, payload: code, code })));
    failAt(a, 'findOneAndUpdate', 2);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    await a.longLane.runOnce();
    expect(seen).toHaveLength(2);
    expect(new Set(seen)).toEqual(new Set(['x', 'y']));
  });

  it('of one round are not forgotten when they cannot be read at once', async () => {
    const a = await pod();
    await a.sideEffect.enqueueMany([
      { target: T, payload: 'one of a batch' },
      { target: ALONE, payload: 'alone', code: 'x' },
    ]);
    failAt(a, 'findOneAndUpdate', 1);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    failAt(a, 'find', 2, false);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    await a.longLane.runOnce();
    expect(seen).toHaveLength(2);
    expect(new Set(seen)).toEqual(new Set(['alone', 'one of a batch']));
  });
});
