/** A transaction whose commit or abort is lost on its way out: nobody waits for it for ever, and nothing of it runs on. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose, { type ClientSession, type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommitUnknownError, InvalidInputError, TransactionEndedError } from '../../src/common/errors.js';
import { inTransaction, queueInTransaction, type Tx } from '../../src/common/utils/transaction.js';
import { LostCommands, type Loss } from '../support/lost_commands.js';
import { waitFor } from '../support/wait_for.js';

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

  it('runs no hook when the commit comes back after it was given up', async () => {
    const held = commands.loseNext('commitTransaction', 'hold');
    await expect(inTransaction(connection, work, SHORT)).rejects.toThrow(CommitUnknownError);
    held.release();
    await waitFor('the commit was carried out', async () => (await visible()).length === 1);
    await connection.close(); // waits for nothing that could still run a hook
    expect(ran).toEqual([]);
  });
});
