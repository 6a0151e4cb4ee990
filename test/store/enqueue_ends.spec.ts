/**
 * Enqueues around the end of a transaction (invariant 1): what is queued, forgotten or left over when an attempt ends
 * is part of its commit or is refused, and never a write of its own.
 */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { TransactionEndedError } from '../../src/common/errors.js';
import { ambientTx, inTransaction, queueOnSession, type ForeignTx } from '../../src/common/utils/transaction.js';
import { JobRejected } from '../../src/index.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { realClock } from '../support/real_clock.js';
import { waitFor } from '../support/wait_for.js';

const TARGET = 'test:send';

/** What a write conflict of the caller's own looks like. */
function conflict(): Error {
  const error = new mongoose.mongo.MongoServerError({ message: 'a write conflict', code: 112 });
  error.addErrorLabel('TransientTransactionError');
  return error;
}

const db = new TestDatabase();
let pod: TestPod;
let count: () => Promise<number>;

beforeEach(async () => {
  pod = await db.pod({}, [{ name: TARGET, lane: 'fast', handler: async () => undefined }]);
  count = () => pod.jobs.countDocuments();
});
afterEach(() => db.reset());
afterAll(() => db.drop());

describe.each([['inTransaction', true] as const, ['connection.transaction of somebody else', false] as const])(
  'enqueues side by side in %s, one of whose operations fails',
  (_, ours) => {
    const transaction = (work: (tx: ForeignTx) => Promise<void>): Promise<void> =>
      ours
        ? inTransaction(pod.connection, work)
        : pod.connection.transaction((session) => work({ session })).then(() => undefined);
    const many = (tx: ForeignTx): Promise<unknown>[] =>
      Array.from({ length: 10 }, (__, index) =>
        // Two writes for some: a look for the keys, then the insert.
        pod.sideEffect.enqueueMany(
          [
            { target: TARGET, payload: index, ...(index % 2 === 0 && { dedupe_key: `d ${index}` }) },
            { target: TARGET, payload: 'second' },
          ],
          tx,
        ),
      );

    it('are written once, by the attempt that commits', async () => {
      let attempts = 0;
      const stray: Promise<unknown>[] = [];
      await transaction(async (tx) => {
        attempts++;
        if (attempts > 1) return void (await Promise.all(many(tx)));
        const bump = queueOnSession(tx.session, () => Promise.reject(conflict()));
        stray.push(...many(tx));
        await Promise.all([bump, ...stray]);
      });
      await Promise.allSettled(stray);
      expect(attempts).toBeGreaterThan(1);
      expect(await count()).toBe(20);
    });

    it('leave nothing when the next attempt says no', async () => {
      let attempts = 0;
      const stray: Promise<unknown>[] = [];
      const work = transaction(async (tx) => {
        if (++attempts > 1) throw new Error('business said no');
        const bump = queueOnSession(tx.session, () => Promise.reject(conflict()));
        stray.push(...many(tx));
        await Promise.all([bump, ...stray]);
      });
      await expect(work).rejects.toThrow('business said no');
      const ends = await Promise.allSettled(stray);
      // One was under way when the attempt failed; its write went with it.
      expect(ends.filter(({ status }) => status === 'rejected').length).toBeGreaterThanOrEqual(ends.length - 1);
      expect(await count()).toBe(0);
    });
  },
);

describe('a look for known keys, in a transaction that its owner ends meanwhile', () => {
  it('is not followed by an insert', async () => {
    const session = await pod.connection.startSession();
    session.startTransaction();
    const rows = [1, 2].map((payload) => ({ target: TARGET, payload, dedupe_key: `d ${payload}` }));
    const find = pod.jobs.find.bind(pod.jobs);
    const looked = (...args: Parameters<typeof find>): { toArray(): Promise<unknown> } => ({
      toArray: async () => {
        const rows = await find(...args).toArray();
        await session.abortTransaction(); // when the answer is there, and before anybody has read it
        return rows;
      },
    });
    Object.assign(pod.jobs, { find: looked });
    const enqueued = pod.sideEffect.enqueueMany(rows, { session });
    await expect(enqueued).rejects.toThrow(TransactionEndedError);
    await session.endSession();
    expect(await count()).toBe(0);
  });
});

describe('an enqueue that nobody awaited', () => {
  it('is committed, announced, and resolves', async () => {
    let enqueued: Promise<unknown> | undefined;
    await inTransaction(pod.connection, async () => {
      enqueued = pod.sideEffect.enqueue(TARGET, 1);
    });
    expect(await enqueued).toMatchObject({ inserted: true });
    expect(await count()).toBe(1);
    expect(pod.eventsOf('enqueued')).toHaveLength(1);
  });
});

describe('work that outlived its transaction', () => {
  it.each(['committed', 'aborted'])('cannot open another one in its place (%s)', async (end) => {
    let finish = (): void => undefined;
    const ended = new Promise<void>((resolve) => void (finish = resolve));
    let late: Promise<unknown> | undefined;
    const work = inTransaction(pod.connection, async () => {
      late = ended
        .then(() => inTransaction(pod.connection, (tx) => pod.sideEffect.enqueue(TARGET, 1, {}, tx)))
        .catch((error: unknown) => error);
      if (end === 'aborted') throw new Error('abort');
    });
    await work.catch(() => undefined);
    finish();
    expect(await late).toMatchObject({ code: 'transaction_ended' });
    expect(await count()).toBe(0);
  });
});

describe('what the caller passed', () => {
  it('is taken as it was at the call, however long the write waits', async () => {
    const headers = { event_id: '' };
    const run_at = new Date(pod.now().getTime() + 60_000);
    await inTransaction(pod.connection, async (tx) => {
      const all = ['a', 'b', 'c'].map((id) => {
        headers.event_id = id;
        return pod.sideEffect.enqueue(TARGET, id, { headers, run_at }, tx);
      });
      run_at.setTime(0);
      await Promise.all(all);
    });
    const rows = await pod.jobs.find().toArray();
    expect(rows.map((row) => `${JSON.stringify(row.payload)} ${row.headers!['event_id']}`).sort()).toEqual([
      '"a" a',
      '"b" b',
      '"c" c',
    ]);
    expect(rows.every((row) => row.run_at.getTime() === pod.now().getTime() + 60_000)).toBe(true);
  });
});

describe('a row enqueued outside of the open transaction', () => {
  it('runs and ends outside of it, too', async () => {
    let runs = 0;
    const seen: unknown[] = [];
    const live = await db.pod(
      { workers: 'on', fast_lane: { idle_poll_ms: [60_000] } },
      [
        {
          name: 'test:rejects',
          lane: 'fast',
          delivery_mode: 'at_most_once',
          handler: async () => {
            runs++;
            throw new JobRejected('never');
          },
          on_dead: async (_job, tx) => void seen.push(tx.session === outer ? 'the caller transaction' : 'its own'),
        },
      ],
      await realClock(),
    );
    let outer: unknown;
    await waitFor('it owns partitions', () => live.leases.readable().length === 4);
    const work = inTransaction(live.connection, async (tx) => {
      outer = tx.session;
      await live.jobs.findOne({}, { session: tx.session });
      await live.sideEffect.enqueue('test:rejects', 1, {}, null);
      await waitFor('it is dead', () => live.eventsOf('dead').length === 1);
      expect(ambientTx()).toBe(tx);
      throw new Error('business said no');
    });
    await expect(work).rejects.toThrow('business said no');
    expect(seen).toEqual(['its own']);
    expect(await live.jobs.findOne({})).toMatchObject({ status: 'DEAD' });
    expect(runs).toBe(1);
  });
});
