/** A transaction whose commit or abort is lost on its way out: nobody waits for it for ever, and nothing of it runs on. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose, { type ClientSession, type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommitUnknownError, InvalidInputError, TransactionEndedError } from '../../src/common/errors.js';
import { inTransaction, queueInTransaction, type Tx } from '../../src/common/utils/transaction.js';
import { LostCommands } from '../support/lost_commands.js';

const dbName = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
/** Longer than a commit takes on a busy machine, where the commit must come back. */
const ENOUGH = { endsWithinMs: 30_000 };
const SHORT = { endsWithinMs: 100 };

describe('a transaction on a connection that loses commands', () => {
  let commands: LostCommands;
  let connection: Connection;
  let other: Connection;
  /** What ran after a commit. */
  let ran: string[];
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);

  const open = () => mongoose.createConnection(process.env['MONGO_URI']!, { dbName }).asPromise();
  const insert = (name: string, session: ClientSession) =>
    connection.collection('rows').insertOne({ name }, { session });
  /** Asked over a connection of its own: what is lost is lost on the other one. */
  const visible = async (): Promise<unknown[]> =>
    (await other.collection('rows').find().sort({ name: 1 }).toArray()).map(({ name }) => name as unknown);

  async function work(tx: Tx, name = 'a'): Promise<string> {
    tx.afterCommit(() => void ran.push('hook'));
    await insert(name, tx.session);
    return 'done';
  }

  beforeAll(async () => {
    other = await open();
    await other.createCollection('rows');
    process.on('unhandledRejection', note);
  });
  beforeEach(async () => {
    ran = [];
    commands = new LostCommands();
    connection = await open();
    await other.collection('rows').deleteMany({});
  });
  afterEach(async () => {
    commands.stop();
    await connection.close(true);
    expect(unhandled.splice(0)).toEqual([]);
  });
  afterAll(async () => {
    process.off('unhandledRejection', note);
    await other.dropDatabase();
    await other.close();
  });

  it('whose commit is lost ends with "unknown", in the time it was given', async () => {
    commands.loseNext('commitTransaction');
    let attempt!: Tx;
    const call = inTransaction(connection, (tx) => work((attempt = tx)), SHORT);
    await expect(call).rejects.toThrow(CommitUnknownError);
    await expect(call).rejects.toMatchObject({ code: 'commit_unknown', message: expect.stringContaining('100 ms') });
    expect(attempt.open).toBe(false);
    expect(() => attempt.afterCommit(() => undefined)).toThrow(TransactionEndedError);
    expect(ran).toEqual([]);
  });

  it('whose commit breaks in the middle of its write ends with "unknown" at once, and names the cause', async () => {
    commands.loseNext('commitTransaction', 'reset');
    const error: unknown = await inTransaction(connection, work, ENOUGH).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(CommitUnknownError);
    expect(error).toMatchObject({
      code: 'commit_unknown',
      cause: { message: expect.stringMatching(/hasErrorLabel|ECONNRESET/) },
    });
    expect(ran).toEqual([]);
  });

  it('runs no hook when the commit comes back after it was given up', async () => {
    const held = commands.loseNext('commitTransaction', 'hold');
    let over!: Promise<unknown>;
    const observed = (tx: Tx): Promise<string> => {
      over = once(tx.session, 'ended'); // the driver has done with it
      return work(tx);
    };
    await expect(inTransaction(connection, observed, SHORT)).rejects.toThrow(CommitUnknownError);
    held.release();
    await over;
    expect(await visible()).toEqual(['a']);
    expect(ran).toEqual([]);
  });

  it('commits, and runs its hooks, when the answer came while the process stood still for longer', async () => {
    const held = commands.loseNext('commitTransaction', 'hold');
    const call = inTransaction(connection, work, SHORT);
    await held.met;
    held.release();
    standStill(1_500);
    await expect(call).resolves.toBe('done');
    expect(ran).toEqual(['hook']);
  });

  describe('whose work fails', () => {
    const fail = async (tx: Tx): Promise<never> => {
      await work(tx);
      throw new Error('business said no');
    };

    it('ends with the error of its work, in the time it was given, when the abort is lost', async () => {
      const { met } = commands.loseNext('abortTransaction');
      await expect(inTransaction(connection, fail, SHORT)).rejects.toThrow('business said no');
      await met;
      expect(ran).toEqual([]);
    });

    it('ends with the error of its work when the abort breaks in the middle of its write', async () => {
      const { met } = commands.loseNext('abortTransaction', 'reset');
      await expect(inTransaction(connection, fail, ENOUGH)).rejects.toThrow('business said no');
      await met;
    });

    it('ends with what doomed it when the abort is lost, also if the work swallowed that', async () => {
      commands.loseNext('abortTransaction');
      const doomed = async (tx: Tx): Promise<void> => {
        await work(tx);
        const part = (): Promise<never> => Promise.reject(new Error('half of it failed'));
        await inTransaction(connection, part).catch(() => undefined);
      };
      await expect(inTransaction(connection, doomed, SHORT)).rejects.toThrow('half of it failed');
    });

    it('ends with the error of its work when a command is lost for which the abort would wait', async () => {
      commands.loseNext('insert', 'silent', 'forgotten');
      const call = inTransaction(
        connection,
        async (tx) => {
          void queueInTransaction(tx, () => insert('forgotten', tx.session)).catch(() => undefined);
          return fail(tx);
        },
        SHORT,
      );
      await expect(call).rejects.toThrow('business said no');
    });

    it('is not run again by an abort that comes back after it was given up', async () => {
      const held = commands.loseNext('abortTransaction', 'hold');
      let attempts = 0;
      let over!: Promise<unknown>;
      const conflict = async (tx: Tx): Promise<void> => {
        over = once(tx.session, 'ended'); // the driver has done with it
        attempts++;
        await work(tx, `attempt ${attempts}`);
        if (attempts === 1) throw transient();
      };
      await expect(inTransaction(connection, conflict, SHORT)).rejects.toThrow('simulated conflict');
      held.release();
      await over;
      expect(attempts).toBe(1);
      expect(await visible()).toEqual([]);
    });
  });

  it('gives its work all the time it wants, in every attempt', async () => {
    let attempts = 0;
    const slow = async (tx: Tx): Promise<void> => {
      await work(tx, `attempt ${++attempts}`);
      if (attempts === 1) throw transient();
      await sleep(1_500);
    };
    await inTransaction(connection, slow, { endsWithinMs: 1_000 });
    expect(attempts).toBe(2);
    expect(ran).toEqual(['hook']);
  });

  it('gives each commit the time again: the one that was lost does not end the next transaction', async () => {
    commands.loseNext('commitTransaction');
    await expect(inTransaction(connection, work, SHORT)).rejects.toThrow(CommitUnknownError);
    await expect(inTransaction(connection, (tx) => work(tx, 'b'), ENOUGH)).resolves.toBe('done');
    expect(ran).toEqual(['hook']);
    expect(await visible()).toContain('b');
  });

  it.each([0, -1, 1.5, Number.NaN, Infinity, 2 ** 31])(
    'refuses %p ms before anything is done',
    async (endsWithinMs) => {
      const call = inTransaction(connection, (tx) => work(tx), { endsWithinMs });
      await expect(call).rejects.toThrow(InvalidInputError);
      await expect(call).rejects.toMatchObject({ field: 'endsWithinMs' });
      expect(await visible()).toEqual([]);
    },
  );
});

function transient(): Error {
  const error = new mongoose.mongo.MongoServerError({ message: 'simulated conflict', code: 112 });
  error.addErrorLabel('TransientTransactionError');
  return error;
}

/** Nothing of this process runs meanwhile, as when it is stopped. */
function standStill(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}
