/**
 * The engine's collections on the host's connection. Majority concerns on all of them (invariant 14): a claim or an
 * outcome that a failover could roll back would promise nothing. Reads that decide ownership go to the primary,
 * whatever the connection string says. In a transaction the transaction's own concerns hold.
 */
import type { Connection, mongo } from 'mongoose';
import type { CounterDoc, JobDoc, MetaDoc, PartitionDoc, WorkerDoc } from './jobs.schema.js';

export interface JobsCollections {
  readonly jobs: mongo.Collection<JobDoc>;
  readonly partitions: mongo.Collection<PartitionDoc>;
  readonly workers: mongo.Collection<WorkerDoc>;
  readonly meta: mongo.Collection<MetaDoc>;
  readonly counters: mongo.Collection<CounterDoc>;
  /** A transaction cannot create its collection everywhere, so it must be there before the first one. */
  createCounters(): Promise<void>;
  /** The database's own time. */
  databaseTime(): Promise<Date>;
}

export const JOBS_COLLECTIONS = Symbol('sidelane.collections');

const CONCERNS: mongo.CollectionOptions = {
  writeConcern: { w: 'majority' },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
};

const NAMESPACE_EXISTS = 48;

export async function openCollections(connection: Connection): Promise<JobsCollections> {
  const { db } = await connection.asPromise();
  if (!db) throw new Error('the Mongoose connection has no database');
  return {
    jobs: db.collection<JobDoc>('jobs', CONCERNS),
    partitions: db.collection<PartitionDoc>('job_partitions', CONCERNS),
    workers: db.collection<WorkerDoc>('job_workers', CONCERNS),
    meta: db.collection<MetaDoc>('job_meta', CONCERNS),
    counters: db.collection<CounterDoc>('job_counters', CONCERNS),
    createCounters: async () => {
      await db.createCollection('job_counters').catch((error: unknown) => {
        if ((error as { code?: unknown }).code !== NAMESPACE_EXISTS) throw error;
      });
    },
    databaseTime: async () => {
      const reply = await db.admin().command({ hello: 1 }, { readPreference: 'primary' });
      if (!(reply['localTime'] instanceof Date)) throw new Error('the database did not tell its time');
      return reply['localTime'];
    },
  };
}
