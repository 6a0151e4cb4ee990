/** Claims of the long lane while the database fails: what was won is run, or given back, whatever else of the round fails. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { NoAnswerError } from '../../src/common/errors.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';
const ALONE = 'test:alone';

describe('claims of the long lane', () => {
  const db = new TestDatabase();
  let seen: string[];
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function pod(clock = new FakeClock(), options: JobsModuleOptions = {}): Promise<TestPod> {
    seen = [];
    const handler = async (job: Job): Promise<void> => void seen.push(job.payload as string);
    const targets: JobTargetOptions[] = [
      { name: T, lane: 'long', delivery_mode: 'at_most_once', handler },
      { name: ALONE, lane: 'long', exclusive: true, handler },
    ];
    return db.pod(options, targets, clock);
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

  it.each([
    ['a batch', 'an exclusive claim of the same round', 1, ['one of a batch', 'alone']],
    ['an exclusive code', 'the next one', 2, ['x', 'y']],
  ])('of %s are not forgotten when %s fails', async (_, __, failing, payloads) => {
    const a = await pod();
    const alone = (payload: string) => ({ target: ALONE, payload, code: payload });
    await a.sideEffect.enqueueMany(
      payloads.map((payload) => (payload === 'one of a batch' ? { target: T, payload } : alone(payload))),
    );
    failAt(a, 'findOneAndUpdate', failing);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    await a.longLane.runOnce();
    expect(seen).toHaveLength(2);
    expect(new Set(seen)).toEqual(new Set(payloads));
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

  /** Its reply is lost at once; it is carried out when the test says so. */
  function lateClaim(a: TestPod): () => Promise<unknown> {
    const updateMany = a.jobs.updateMany.bind(a.jobs);
    let carryOut = (): Promise<unknown> => Promise.resolve();
    a.jobs.updateMany = (...args) => {
      a.jobs.updateMany = updateMany;
      carryOut = () => updateMany(...args);
      return Promise.reject(new Error('lost'));
    };
    return () => carryOut();
  }

  it('that are carried out after their rows were looked for are not forgotten', async () => {
    const clock = new FakeClock();
    const a = await pod(clock);
    await a.sideEffect.enqueue(T, 'late');
    const carryOut = lateClaim(a);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    const find = a.jobs.find.bind(a.jobs);
    a.jobs.find = ((...args: Parameters<typeof find>) => {
      a.jobs.find = find;
      const cursor = find(...args);
      const toArray = cursor.toArray.bind(cursor);
      cursor.toArray = async () => {
        const rows = await toArray();
        await carryOut(); // right after the look
        return rows;
      };
      return cursor;
    }) as typeof find;
    expect(await a.longLane.runOnce()).toBe(0);
    clock.advance(1_000);
    expect(await a.longLane.runOnce()).toBe(1);
    expect(seen).toEqual(['late']);
    expect(await a.jobs.countDocuments()).toBe(0);
  });

  it('that may still be carried out are looked for once a second, for 30 s, with one command', async () => {
    const clock = new FakeClock();
    const a = await pod(clock);
    await a.sideEffect.enqueueMany([1, 2, 3].map((payload) => ({ target: T, payload })));
    lateClaim(a);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    lateClaim(a);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    expect(await a.longLane.runOnce()).toBe(3);
    const looks = async (): Promise<number> => {
      const before = await a.commandsOf(() => a.longLane.runOnce());
      return before.filter((name) => name === 'find').length;
    };
    const idle = await looks(); // not due again: the look for work alone
    clock.advance(1_000);
    expect(await looks()).toBe(idle + 1);
    expect(await looks()).toBe(idle);
    clock.advance(29_000);
    expect(await looks()).toBe(idle + 1); // the last
    clock.advance(1_000);
    expect(await looks()).toBe(idle);
  });

  it('whose rows cannot be seen at once are not forgotten', async () => {
    const clock = new FakeClock();
    const a = await pod(clock);
    await a.sideEffect.enqueueMany([1, 2].map((payload) => ({ target: T, payload: String(payload) })));
    const find = a.jobs.find.bind(a.jobs);
    a.jobs.find = ((...[filter, options]: Parameters<typeof find>) => {
      if (!('claim_token' in filter)) return find(filter, options);
      a.jobs.find = find;
      return find(filter, { ...options, limit: 1 });
    }) as typeof find;
    expect(await a.longLane.runOnce()).toBe(1);
    expect(await a.longLane.runOnce()).toBe(1);
    expect(new Set(seen)).toEqual(new Set(['1', '2']));
    expect(await a.jobs.countDocuments()).toBe(0);
  });

  it('whose reply was lost before a stop are given back', async () => {
    const a = await pod();
    await a.sideEffect.enqueue(T, 1);
    failAt(a, 'updateMany', 1);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    expect(await a.jobs.findOne()).toMatchObject({ status: 'RUNNING' });
    expect(await a.longLane.stop(1_000)).toBe(true);
    expect(seen).toEqual([]);
    expect(await a.jobs.findOne()).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
  });

  it('that cannot be looked for do not fail a stop', async () => {
    const a = await pod();
    await a.sideEffect.enqueue(T, 1);
    failAt(a, 'updateMany', 1);
    await expect(a.longLane.runOnce()).rejects.toThrow('lost');
    failAt(a, 'find', 1, false);
    expect(await a.longLane.stop(1_000)).toBe(true);
  });

  it.each([
    ['updateMany', T],
    ['findOneAndUpdate', ALONE],
    ['find', T],
  ] as const)('whose reply never comes (%s) are given up, looked for, and run', async (method, target) => {
    const a = await pod(new FakeClock(), { command_timeout_ms: 1_500 });
    await a.sideEffect.enqueue(target, 'hung');
    const jobs = a.jobs as unknown as Record<string, (...args: unknown[]) => unknown>;
    const real = jobs[method]!.bind(a.jobs);
    const called = new Promise<void>((resolve) => {
      jobs[method] = (...args) => {
        if (method === 'find' && !('claim_token' in (args[0] as object))) return real(...args);
        jobs[method] = real;
        if (method === 'find') {
          resolve();
          return { toArray: () => new Promise(() => undefined) };
        }
        return Promise.resolve(real(...args)).then(() => {
          resolve();
          return new Promise(() => undefined);
        });
      };
    });
    const round = a.longLane.runOnce();
    await called;
    await expect(round).rejects.toThrow(NoAnswerError);
    await a.longLane.runOnce();
    expect(seen).toEqual(['hung']);
    expect(await a.jobs.countDocuments()).toBe(0);
  });
});
