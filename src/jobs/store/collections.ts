/**
 * The engine's collections on the host's connection. Majority concerns on all of them (invariant 14), see `MAJORITY`.
 */
import type { Connection, mongo } from 'mongoose';
import { MAJORITY } from '../../common/utils/majority.js';
import type {
  AuditDoc,
  CounterDoc,
  JobDoc,
  MetaDoc,
  PartitionDoc,
  RateLimitDoc,
  TargetDoc,
  WorkerDoc,
} from './jobs.schema.js';

export interface JobsCollections {
  /** Where the engine's own transactions are opened. */
  readonly connection: Connection;
  readonly jobs: mongo.Collection<JobDoc>;
  readonly partitions: mongo.Collection<PartitionDoc>;
  readonly workers: mongo.Collection<WorkerDoc>;
  readonly meta: mongo.Collection<MetaDoc>;
  readonly counters: mongo.Collection<CounterDoc>;
  readonly targets: mongo.Collection<TargetDoc>;
  readonly audit: mongo.Collection<AuditDoc>;
  readonly rateLimits: mongo.Collection<RateLimitDoc>;
  /** A transaction cannot create its collection everywhere, so these must be there before the first one. */
  createBare(): Promise<void>;
  /** The database's own time. */
  databaseTime(): Promise<Date>;
}

export const JOBS_COLLECTIONS = Symbol('sidelane.collections');

const NAMESPACE_EXISTS = 48;

export async function openCollections(connection: Connection): Promise<JobsCollections> {
  const { db } = await connection.asPromise();
  if (!db) throw new Error('the Mongoose connection has no database');
  return {
    connection,
    jobs: db.collection<JobDoc>('jobs', MAJORITY),
    partitions: db.collection<PartitionDoc>('job_partitions', MAJORITY),
    workers: db.collection<WorkerDoc>('job_workers', MAJORITY),
    meta: db.collection<MetaDoc>('job_meta', MAJORITY),
    counters: db.collection<CounterDoc>('job_counters', MAJORITY),
    targets: db.collection<TargetDoc>('job_targets', MAJORITY),
    audit: db.collection<AuditDoc>('job_audit', MAJORITY),
    rateLimits: db.collection<RateLimitDoc>('job_rate_limits', MAJORITY),
    createBare: async () => {
      for (const name of ['job_counters', 'job_targets', 'job_audit']) {
        await db.createCollection(name).catch((error: unknown) => {
          if ((error as { code?: unknown }).code !== NAMESPACE_EXISTS) throw error;
        });
      }
    },
    databaseTime: async () => {
      const reply = await db.admin().command({ hello: 1 }, { readPreference: 'primary' });
      if (!(reply['localTime'] instanceof Date)) throw new Error('the database did not tell its time');
      return reply['localTime'];
    },
  };
}
