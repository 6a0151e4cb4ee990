/** Invariant 1 on a real database: work done through a transaction exists if and only if that transaction committed. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Logger } from '@nestjs/common';
import mongoose, { type ClientSession, type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { TransactionEndedError } from '../../src/common/errors.js';
import { afterCommit, ambientTx, inTransaction, queueOnSession, type Tx } from '../../src/common/utils/transaction.js';

const dbName = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
let connection: Connection;
/** What ran after a commit, in order. */
let ran: string[];
let logged: string[];

const connect = (): Promise<Connection> => mongoose.createConnection(process.env['MONGO_URI']!, { dbName }).asPromise();
const rows = () => connection.collection<{ name: string; n: number }>('rows');
const insert = (name: string, session: ClientSession) => rows().insertOne({ name, n: 0 }, { session });
/** The rows that everybody sees, outside of any transaction. */
const visible = async (): Promise<string[]> =>
  (await rows().find().sort({ name: 1 }).toArray()).map(({ name }) => name);

function serverError(label?: string): Error {
  const error = new mongoose.mongo.MongoServerError({ message: 'simulated failure of the server', code: 999 });
  if (label) error.addErrorLabel(label);
  return error;
}

/** Work that goes on until the test lets it: what a caller forgot to await. */
function gate(): { open: () => void; opened: Promise<void> } {
  let open!: () => void;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { open, opened };
}

beforeAll(async () => {
  connection = await connect();
  await connection.createCollection('rows');
  const silent = (): void => undefined;
  Logger.overrideLogger({ log: silent, warn: silent, error: (message: string) => void logged.push(message) });
});
beforeEach(async () => {
  ran = [];
  logged = [];
  await rows().deleteMany({});
});
afterAll(async () => {
  await connection.dropDatabase();
  await connection.close();
});

describe('a transaction that commits', () => {
  it('runs its hooks in order, each when its rows are visible to everybody, before it returns', async () => {
    const value = await inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      tx.afterCommit(async () => void ran.push(`first sees ${(await visible()).join()}`));
      afterCommit(tx, () => void ran.push('second'));
      expect(await visible()).toEqual([]);
      return 'result';
    });
    expect(value).toBe('result');
    expect(ran).toEqual(['first sees a', 'second']);
  });

  it('logs a hook that throws and one that rejects, does not throw, and runs the others', async () => {
    await inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      tx.afterCommit(() => {
        throw new Error('threw');
      });
      tx.afterCommit(() => Promise.reject(new Error('rejected')));
      tx.afterCommit(() => void ran.push('last'));
    });
    expect(ran).toEqual(['last']);
    expect(logged).toEqual(['after-commit hook failed: threw', 'after-commit hook failed: rejected']);
    expect(await visible()).toEqual(['a']);
  });
});

describe('a transaction that fails', () => {
  it('runs no hook and leaves no row when its work throws', async () => {
    const work = inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      tx.afterCommit(() => void ran.push('hook'));
      throw new Error('business said no');
    });
    await expect(work).rejects.toThrow('business said no');
    expect(ran).toEqual([]);
    expect(await visible()).toEqual([]);
  });

  it('runs no hook when the commit itself fails', async () => {
    const work = inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      tx.afterCommit(() => void ran.push('hook'));
      tx.session.commitTransaction = () => Promise.reject(serverError());
    });
    await expect(work).rejects.toThrow('simulated failure');
    expect(ran).toEqual([]);
  });
});

describe('a transaction whose callback runs twice', () => {
  it('runs only the hooks of the second attempt, after a transient error', async () => {
    let attempts = 0;
    await inTransaction(connection, async (tx) => {
      const attempt = ++attempts;
      await insert(`attempt ${attempt}`, tx.session);
      tx.afterCommit(() => void ran.push(`hook ${attempt}`));
      if (attempt === 1) throw serverError('TransientTransactionError');
    });
    expect(attempts).toBe(2);
    expect(ran).toEqual(['hook 2']);
    expect(await visible()).toEqual(['attempt 2']);
  });

  it('runs only the hooks of the second attempt, after a real write conflict', async () => {
    await rows().insertOne({ name: 'shared', n: 0 });
    let attempts = 0;
    await inTransaction(connection, async (tx) => {
      const attempt = ++attempts;
      tx.afterCommit(() => void ran.push(`hook ${attempt}`));
      await rows().findOne({ name: 'shared' }, { session: tx.session });
      // Somebody else writes the row after this attempt's snapshot was taken.
      if (attempt === 1) await rows().updateOne({ name: 'shared' }, { $inc: { n: 10 } });
      await rows().updateOne({ name: 'shared' }, { $inc: { n: 1 } }, { session: tx.session });
    });
    expect(attempts).toBe(2);
    expect(ran).toEqual(['hook 2']);
    expect(await rows().findOne({ name: 'shared' })).toMatchObject({ n: 11 });
  });

  it('refuses what the first attempt left running, while the second one runs', async () => {
    let first: Tx | undefined;
    await inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      if (!first) {
        first = tx;
        throw serverError('TransientTransactionError');
      }
      expect(() => first!.afterCommit(() => void ran.push('stray'))).toThrow(TransactionEndedError);
      expect(tx.open).toBe(true);
    });
    expect(ran).toEqual([]);
  });
});

describe('the ambient transaction', () => {
  it('is seen inside, however deep, and neither in hooks nor afterwards', async () => {
    const seen: Record<string, Tx | undefined> = {};
    const transaction = await inTransaction(connection, async (tx) => {
      seen['inside'] = ambientTx();
      await insert('a', tx.session);
      await (async () => void (seen['deep'] = ambientTx()))();
      tx.afterCommit(async () => {
        seen['hook'] = ambientTx();
        await Promise.resolve();
        seen['hook, later'] = ambientTx();
      });
      return tx;
    });
    expect(seen['inside']).toBe(transaction);
    expect(seen['deep']).toBe(transaction);
    expect(seen).toMatchObject({ hook: undefined, 'hook, later': undefined });
    expect(ambientTx()).toBeUndefined();
  });

  it('of one hook is not there for a transaction that the hook opens: that one commits by itself', async () => {
    await inTransaction(connection, async (outer) => {
      await insert('a', outer.session);
      outer.afterCommit(() =>
        inTransaction(connection, async (own) => {
          expect(own).not.toBe(outer);
          await insert('b', own.session);
        }),
      );
    });
    expect(logged).toEqual([]);
    expect(await visible()).toEqual(['a', 'b']);
  });
});

describe('a transaction inside another', () => {
  it('joins it: one session, one commit, and its hooks wait for that commit', async () => {
    await inTransaction(connection, async (outer) => {
      const inner = await inTransaction(connection, async (tx) => {
        await insert('inner', tx.session);
        tx.afterCommit(() => void ran.push('inner'));
        return tx;
      });
      expect(inner).toBe(outer);
      expect(ran).toEqual([]);
      expect(await visible()).toEqual([]);
      await insert('outer', outer.session);
      outer.afterCommit(() => void ran.push('outer'));
    });
    expect(ran).toEqual(['inner', 'outer']);
    expect(await visible()).toEqual(['inner', 'outer']);
  });

  it('fails the commit with its error even when the outer one swallows it', async () => {
    const work = inTransaction(connection, async (outer) => {
      outer.afterCommit(() => void ran.push('hook'));
      await insert('outer', outer.session);
      await inTransaction(connection, () => Promise.reject(new Error('inner failed'))).catch(() => undefined);
    });
    await expect(work).rejects.toThrow('inner failed');
    expect(ran).toEqual([]);
    expect(await visible()).toEqual([]);
  });

  it('that meets a transient error has the outer one run again, even when it swallows the error', async () => {
    let attempts = 0;
    await inTransaction(connection, async (outer) => {
      const attempt = ++attempts;
      await insert(`attempt ${attempt}`, outer.session);
      const inner = async (): Promise<void> => {
        if (attempt === 1) throw serverError('TransientTransactionError');
      };
      await inTransaction(connection, inner).catch(() => undefined);
    });
    expect(attempts).toBe(2);
    expect(await visible()).toEqual(['attempt 2']);
  });

  it('on another connection is one of its own, and stays when the outer one aborts', async () => {
    const other = await connect();
    try {
      const work = inTransaction(connection, async (outer) => {
        await insert('outer', outer.session);
        await inTransaction(other, async (tx) => {
          expect(tx).not.toBe(outer);
          await other.collection('rows').insertOne({ name: 'other', n: 0 }, { session: tx.session });
        });
        throw new Error('abort');
      });
      await expect(work).rejects.toThrow('abort');
      expect(await visible()).toEqual(['other']);
    } finally {
      await other.close();
    }
  });
});

describe('work left running past the end', () => {
  it.each(['commit', 'abort'])('of a transaction is refused after its %s', async (end) => {
    const { open, opened } = gate();
    let straggler!: Promise<void>;
    const work = inTransaction(connection, async (tx) => {
      await insert('a', tx.session);
      straggler = opened.then(() => ambientTx()!.afterCommit(() => void ran.push('stray')));
      straggler.catch(() => undefined);
      if (end === 'abort') throw new Error('abort');
    });
    await work.catch(() => undefined);
    open();
    await expect(straggler).rejects.toThrow(TransactionEndedError);
    expect(ran).toEqual([]);
  });

  it('that queued its operation in time is waited for and part of the commit', async () => {
    await inTransaction(connection, async (tx) => {
      void queueOnSession(tx.session, () => insert('a', tx.session));
      void queueOnSession(tx.session, () => insert('b', tx.session));
    });
    expect(await visible()).toEqual(['a', 'b']);
  });
});

describe('operations queued on a session', () => {
  const both = ({ session }: Tx) =>
    Promise.all(['a', 'b'].map((name) => queueOnSession(session, () => insert(name, session))));

  it('side by side are both in the transaction when it commits', async () => {
    await inTransaction(connection, async (tx) => {
      await both(tx);
      expect(await visible()).toEqual([]);
    });
    expect(await visible()).toEqual(['a', 'b']);
  });

  it('side by side are both gone when it aborts', async () => {
    const work = inTransaction(connection, async (tx) => {
      await both(tx);
      throw new Error('abort');
    });
    await expect(work).rejects.toThrow('abort');
    expect(await visible()).toEqual([]);
  });

  it('run one at a time in the order they came, also behind one that failed', async () => {
    const session = await connection.startSession();
    const { open, opened } = gate();
    const first = queueOnSession(session, async () => {
      await opened;
      ran.push('first');
      throw new Error('first failed');
    });
    const second = queueOnSession(session, async () => ran.push('second'));
    open();
    await expect(first).rejects.toThrow('first failed');
    await second;
    expect(ran).toEqual(['first', 'second']);
    await session.endSession();
  });
});

describe('hooks on a transaction that somebody else commits', () => {
  it('run after the commit of connection.transaction(), and only then', async () => {
    await connection.transaction(async (session) => {
      await insert('a', session);
      afterCommit({ session }, async () => void ran.push(`sees ${(await visible()).join()}`));
      afterCommit({ session }, () => void ran.push('second'));
      expect(ran).toEqual([]);
    });
    expect(ran).toEqual(['sees a', 'second']);
  });

  it('do not run when it aborts', async () => {
    const work = connection.transaction(async (session) => {
      await insert('a', session);
      afterCommit({ session }, () => void ran.push('hook'));
      throw new Error('abort');
    });
    await expect(work).rejects.toThrow('abort');
    expect(ran).toEqual([]);
  });

  it('run for the second attempt only when the first one aborts', async () => {
    let attempts = 0;
    await connection.transaction(async (session) => {
      const attempt = ++attempts;
      await insert(`attempt ${attempt}`, session);
      afterCommit({ session }, () => void ran.push(`hook ${attempt}`));
      if (attempt === 1) throw serverError('TransientTransactionError');
    });
    expect(ran).toEqual(['hook 2']);
    expect(await visible()).toEqual(['attempt 2']);
  });

  it('run for the second attempt only when the commit of the first one fails', async () => {
    let attempts = 0;
    await connection.transaction(async (session) => {
      const attempt = ++attempts;
      if (attempt === 1) {
        const [abort, commit] = [session.abortTransaction.bind(session), session.commitTransaction.bind(session)];
        session.commitTransaction = async () => {
          if (attempts > 1) return commit();
          await abort();
          throw serverError('TransientTransactionError');
        };
      }
      await insert(`attempt ${attempt}`, session);
      afterCommit({ session }, () => void ran.push(`hook ${attempt}`));
    });
    expect(ran).toEqual(['hook 2']);
    expect(await visible()).toEqual(['attempt 2']);
  });

  it('run once when it is committed twice by hand', async () => {
    const session = await connection.startSession();
    session.startTransaction();
    await insert('a', session);
    afterCommit({ session }, () => void ran.push('hook'));
    await session.commitTransaction();
    await session.commitTransaction();
    await session.endSession();
    expect(ran).toEqual(['hook']);
  });

  it('do not see a transaction around it', async () => {
    await inTransaction(connection, async (outer) => {
      await connection.transaction(async (session) => {
        await insert('a', session);
        afterCommit({ session }, () => void ran.push(ambientTx() ? 'inside' : 'outside'));
      });
      expect(ambientTx()).toBe(outer);
    });
    expect(ran).toEqual(['outside']);
  });

  it('run once when the answer to the commit was lost and the driver commits again', async () => {
    let commits = 0;
    await connection.transaction(async (session) => {
      const commit = session.commitTransaction.bind(session);
      session.commitTransaction = async () => {
        await commit();
        if (++commits === 1) throw serverError('UnknownTransactionCommitResult');
      };
      await insert('a', session);
      afterCommit({ session }, () => void ran.push('hook'));
    });
    expect(commits).toBe(2);
    expect(ran).toEqual(['hook']);
    expect(await visible()).toEqual(['a']);
  });

  it('that throw are logged and leave the commit a success', async () => {
    await connection.transaction(async (session) => {
      await insert('a', session);
      afterCommit({ session }, () => Promise.reject(new Error('hook failed')));
    });
    expect(logged).toEqual(['after-commit hook failed: hook failed']);
    expect(await visible()).toEqual(['a']);
  });

  it('belong to one transaction of a session that is used by hand for several', async () => {
    const session = await connection.startSession();
    const transact = async (name: string, end: 'commit' | 'abort'): Promise<void> => {
      session.startTransaction();
      await insert(name, session);
      afterCommit({ session }, () => void ran.push(name));
      await (end === 'commit' ? session.commitTransaction() : session.abortTransaction());
    };
    await transact('a', 'commit');
    await transact('b', 'abort');
    await transact('c', 'commit');
    await session.endSession();
    expect(ran).toEqual(['a', 'c']);
    expect(await visible()).toEqual(['a', 'c']);
  });

  it('do not run when the session ends without a commit', async () => {
    const session = await connection.startSession();
    session.startTransaction();
    await insert('a', session);
    afterCommit({ session }, () => void ran.push('hook'));
    await session.endSession();
    expect(ran).toEqual([]);
    expect(await visible()).toEqual([]);
  });
});

describe('work that ends its transaction by hand', () => {
  it.each(['abortTransaction', 'commitTransaction'] as const)('%s fails the call and runs no hook', async (method) => {
    const work = inTransaction(connection, async (tx) => {
      await insert('by_hand', tx.session);
      tx.afterCommit(() => void ran.push('hook'));
      await tx.session[method]();
    });
    await expect(work).rejects.toBeInstanceOf(TransactionEndedError);
    expect(ran).toEqual([]);
  });
});
