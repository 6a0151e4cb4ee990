/**
 * The host's database as the engine uses it.
 *
 * Majority concerns on every collection (invariant 14): a claim or an outcome that a failover could roll back would promise
 * nothing. Reads that decide ownership go to the primary, whatever the connection string says. In a transaction the
 * transaction's own concerns hold. Nothing is waited for longer than `timeout_ms` (answers.ts).
 */
import type { Connection, mongo } from 'mongoose';
import { answeredWithin, answerWithin } from './answers.js';
import { inTransaction, type Tx } from './transaction.js';

const MAJORITY: mongo.CollectionOptions = {
  writeConcern: { w: 'majority' },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
};

export interface EngineDatabase {
  collection<Doc extends mongo.Document>(name: string): mongo.Collection<Doc>;
  createCollection(name: string): Promise<unknown>;
  hello(): Promise<mongo.Document>;
  readonly inTransaction: EngineTransaction;
}

/** A transaction of the engine itself, or the one that this call stands in. As `inTransaction`, which see. */
export type EngineTransaction = <T>(work: (tx: Tx) => Promise<T>) => Promise<T>;

export async function engineDatabase(connection: Connection, timeout_ms: number): Promise<EngineDatabase> {
  const { db } = await connection.asPromise();
  if (!db) throw new Error('the Mongoose connection has no database');
  return {
    collection: <Doc extends mongo.Document>(name: string) =>
      answeredWithin(timeout_ms, db.collection<Doc>(name, MAJORITY)),
    createCollection: (name) => answerWithin(timeout_ms, `create ${name}`, db.createCollection(name)),
    hello: () => {
      const command = new AbortController();
      const options = { readPreference: 'primary', signal: command.signal } as const;
      return answerWithin(timeout_ms, 'hello', db.admin().command({ hello: 1 }, options), command);
    },
    inTransaction: (work) => inTransaction(connection, work, { endsWithinMs: timeout_ms }),
  };
}
