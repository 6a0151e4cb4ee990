/** What waits for the driver's end of a transaction: its timer, and how it reads what the driver throws. */
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import mongoose from 'mongoose';
import { CommitUnknownError, TransactionEndedError } from '../../src/common/errors.js';
import { ENDS_WITHIN_MS, TransactionEnd } from '../../src/common/utils/transaction_end.js';

const raw = (): Error => Object.assign(new Error('write EPIPE'), { code: 'EPIPE', syscall: 'write' });
/** As a driver that is another copy throws it. */
const labelled = (): Error => Object.assign(new Error('no primary'), { hasErrorLabel: () => false });

describe('the end of a transaction', () => {
  afterEach(() => void jest.useRealTimers());

  it.each(['commits', 'fails'])('leaves no timer behind when the driver %s', async (how) => {
    jest.useFakeTimers();
    const end = new TransactionEnd(ENDS_WITHIN_MS);
    end.begin();
    end.workDone();
    expect(jest.getTimerCount()).toBe(1);
    await end.of(how === 'commits' ? Promise.resolve() : Promise.reject(labelled())).catch(() => undefined);
    expect(jest.getTimerCount()).toBe(0);
    end.workFailed(new Error('late')); // of an attempt that was given up
    expect(jest.getTimerCount()).toBe(0);
  });

  it('keeps no process alive', () => {
    const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
    const before = timers();
    const end = new TransactionEnd(ENDS_WITHIN_MS);
    end.begin();
    end.workDone();
    expect(timers()).toBe(before);
    end.begin();
  });

  it('waits longer than the driver tries a commit again, and waits for a server to try it on', () => {
    expect(ENDS_WITHIN_MS).toBeGreaterThanOrEqual(120_000 + 30_000);
  });

  it('begins its time anew with each attempt, also when it ran out in the turn in which that began', async () => {
    jest.useFakeTimers();
    const end = new TransactionEnd(100);
    let commit!: (value: string) => void;
    const call = end.of(new Promise<string>((resolve) => (commit = resolve)));
    end.begin();
    end.workFailed(new Error('conflict'));
    jest.advanceTimersToNextTimer(); // its one turn of grace is left
    end.begin();
    jest.runAllTimers();
    commit('done');
    await expect(call).resolves.toBe('done');
  });

  it('lets no attempt begin once it is over', async () => {
    const end = new TransactionEnd(100);
    await end.of(Promise.resolve());
    expect(() => end.begin()).toThrow(TransactionEndedError);
  });

  describe('reads what is thrown', () => {
    const thrownAfter = async (settle: (end: TransactionEnd) => void, error: unknown): Promise<unknown> => {
      const end = new TransactionEnd(ENDS_WITHIN_MS);
      end.begin();
      settle(end);
      return end.of(Promise.reject(error as Error)).catch((thrown: unknown) => thrown);
    };
    const done = (end: TransactionEnd): void => end.workDone();
    const failed = (end: TransactionEnd): void => end.workFailed(new Error('work'));

    it.each([
      raw(),
      new TypeError('commitError.hasErrorLabel is not a function'),
      undefined,
      // Thrown for the second try; the reply of the first was lost.
      Object.assign(new Error('no primary'), { name: 'MongoServerSelectionError', hasErrorLabel: () => false }),
      Object.assign(new Error('too long'), { hasErrorLabel: (label: string) => label.startsWith('Unknown') }),
    ])('in the commit: %p is "unknown", with its cause', async (error) => {
      const thrown = await thrownAfter(done, error);
      expect(thrown).toBeInstanceOf(CommitUnknownError);
      expect((thrown as Error).cause).toBe(error);
    });

    it.each([new mongoose.mongo.MongoServerError({ message: 'no' }), labelled()])(
      'in the commit: %p of the driver is left as it is',
      async (error) => expect(await thrownAfter(done, error)).toBe(error),
    );

    it.each([raw(), new TypeError('of the work'), new TransactionEndedError()])(
      'after work that failed: %p is left as it is',
      async (error) => expect(await thrownAfter(failed, error)).toBe(error),
    );
  });
});
