/** Renewals while a command hangs: a connection that died without a word takes no claim with it, and no handler is left untold. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import type { JobContext } from '../../src/jobs/jobs.types.js';
import { renewClaims } from '../../src/jobs/store/long_lane.store.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const MINUTE = 60_000;
const T = 'test:work';

describe('claims while a command hangs', () => {
  const db = new TestDatabase();
  let finish: () => void;
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  interface Running {
    readonly pod: TestPod;
    readonly clock: FakeClock;
    readonly context: JobContext;
  }

  /** One row that runs until its signal aborts or the test ends it; a minute later, so that its claim is to be renewed. */
  async function running(): Promise<Running> {
    const clock = new FakeClock();
    let arrived = (_: JobContext): void => undefined;
    const arrival = new Promise<JobContext>((resolve) => (arrived = resolve));
    const handler = (_: unknown, context: JobContext): Promise<void> => {
      arrived(context);
      return new Promise((resolve, reject) => {
        finish = resolve;
        context.signal.addEventListener('abort', () => reject(context.signal.reason as Error));
      });
    };
    const pod = await db.pod({}, [{ name: T, lane: 'long', handler }], clock);
    await pod.sideEffect.enqueue(T, 1);
    await pod.longLane.startOnce();
    const context = await arrival;
    clock.advance(MINUTE);
    return { pod, clock, context };
  }

  async function end({ pod }: Running): Promise<void> {
    finish();
    await pod.longLane.idle();
  }

  interface Hung {
    /** Settles once the call was made. */
    readonly called: Promise<void>;
    /** Carries it out, late. */
    answer(): Promise<void>;
  }

  /** The next call never comes back, unless the test lets it. */
  function hang(pod: TestPod, method: 'updateMany' | 'bulkWrite' | 'find'): Hung {
    const jobs = pod.jobs as unknown as Record<string, (...args: unknown[]) => unknown>;
    const real = jobs[method]!.bind(pod.jobs);
    let answer = (): Promise<void> => Promise.resolve();
    const called = new Promise<void>((resolve) => {
      jobs[method] = (...args) => {
        jobs[method] = real;
        const hung = new Promise<unknown>((done) => {
          answer = async () => done(await real(...args));
        });
        resolve();
        return method === 'find' ? { toArray: () => hung } : hung;
      };
    });
    const late = async (): Promise<void> => {
      await answer();
      await turn();
    };
    return { called, answer: late };
  }

  /** A look whose command hangs, and the time it may take. */
  async function lookInVain({ pod, clock }: Running, { called }: Hung, ms = 20_000): Promise<void> {
    const look = pod.keeper.look().then(
      () => 'done',
      (error: Error) => error.message,
    );
    await called;
    clock.advance(ms);
    expect(await look).toContain(`no answer within ${ms} ms`);
  }

  const leaseLeft = async ({ pod, clock }: Running): Promise<number> =>
    (await pod.jobs.findOne())!.lease_until!.getTime() - clock.now().getTime();

  it('a renewal that never comes back does not hold up the next', async () => {
    const run = await running();
    await lookInVain(run, hang(run.pod, 'updateMany'));
    await run.pod.keeper.look();
    expect(await leaseLeft(run)).toBe(5 * MINUTE);
    run.clock.advance(5 * MINUTE - 2_000);
    await run.pod.keeper.look();
    expect(run.context.signal.aborted).toBe(false);
    await end(run);
  });

  it.each(['find', 'bulkWrite'] as const)('a look that hangs (%s) does not hold up the renewals', async (method) => {
    const run = await running();
    await run.pod.keeper.look();
    run.context.progress(50);
    await lookInVain(run, hang(run.pod, method));
    run.clock.advance(MINUTE);
    await run.pod.keeper.look();
    expect(await leaseLeft(run)).toBe(5 * MINUTE);
    await end(run);
  });

  it('a handler is told before another pod may take its row, though no renewal comes back', async () => {
    const run = await running();
    // A minute and 220 s: 20 s of the lease are left.
    for (let vain = 0; vain < 11; vain++) await lookInVain(run, hang(run.pod, 'updateMany'));
    expect(run.context.signal.aborted).toBe(false);
    await lookInVain(run, hang(run.pod, 'updateMany'), 19_000);
    expect(run.context.signal.reason).toMatchObject({ why: 'claim_lost' });
    expect(run.pod.eventsOf('claim_lost')).toMatchObject([{ where: 'renewal' }]);
    await run.pod.longLane.idle();
  });

  it('the answer of a renewal that was given up still counts, from the time it was asked for', async () => {
    const run = await running();
    const hung = hang(run.pod, 'updateMany');
    await lookInVain(run, hung);
    await hung.answer();
    run.clock.advance(5 * MINUTE - 20_000 - 1_001);
    run.pod.jobs.updateMany = () => Promise.reject(new Error('gone'));
    await expect(run.pod.keeper.look()).rejects.toThrow('gone');
    expect(run.context.signal.aborted).toBe(false);
    run.clock.advance(1);
    await expect(run.pod.keeper.look()).rejects.toThrow('gone');
    expect(run.context.signal.aborted).toBe(true);
    await run.pod.longLane.idle();
  });

  it('a renewal that arrives after a later one does not shorten the lease', async () => {
    const run = await running();
    const hung = hang(run.pod, 'updateMany');
    await lookInVain(run, hung);
    await run.pod.keeper.look();
    await hung.answer();
    expect(await leaseLeft(run)).toBe(5 * MINUTE);
    run.clock.advance(5 * MINUTE - 1_001);
    run.pod.jobs.updateMany = () => Promise.reject(new Error('gone'));
    await expect(run.pod.keeper.look()).rejects.toThrow('gone');
    expect(run.context.signal.aborted).toBe(false);
    await end(run);
  });

  it('a pod that wakes up after its claims ran out waits a second for the renewal: where nobody took the row, it runs on', async () => {
    const run = await running();
    run.clock.advance(4 * MINUTE);
    const hung = hang(run.pod, 'updateMany');
    const look = run.pod.keeper.look();
    await hung.called;
    run.clock.advance(999);
    await hung.answer();
    await look;
    expect(run.context.signal.aborted).toBe(false);
    await end(run);
  });

  it('a handler whose row is gone is told with the next look when the first could not ask whose it is', async () => {
    const run = await running();
    await run.pod.jobs.updateOne({}, { $set: { claim_token: 'another' } });
    const find = run.pod.jobs.find.bind(run.pod.jobs);
    run.pod.jobs.find = () => {
      run.pod.jobs.find = find;
      throw new Error('gone');
    };
    await expect(run.pod.keeper.look()).rejects.toThrow('gone');
    await run.pod.keeper.look();
    expect(run.context.signal.reason).toMatchObject({ why: 'claim_lost' });
    await run.pod.longLane.idle();
  });

  it('a renewal under another claim than the row’s own changes nothing', async () => {
    const run = await running();
    const row = (await run.pod.jobs.findOne())!;
    const far = new Date(run.clock.now().getTime() + 60 * MINUTE);
    expect(await renewClaims(run.pod.collections, [{ ...row, claim_token: 'another' }], far)).toBe(0);
    expect((await run.pod.jobs.findOne())!.lease_until).toEqual(row.lease_until);
    await end(run);
  });
});
