/**
 * The engine's collections on the host's connection.
 */
import type { Connection, mongo } from 'mongoose';
import { engineDatabase, type EngineTransaction } from '../../common/utils/engine_database.js';
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
  /** The engine's own transactions. */
  readonly inTransaction: EngineTransaction;
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

/** `command_timeout_ms`: no command is waited for longer. */
export async function openCollections(
  connection: Connection,
  { command_timeout_ms }: { readonly command_timeout_ms: number },
): Promise<JobsCollections> {
  const database = await engineDatabase(connection, command_timeout_ms);
  return {
    inTransaction: database.inTransaction,
    jobs: database.collection<JobDoc>('jobs'),
    partitions: database.collection<PartitionDoc>('job_partitions'),
    workers: database.collection<WorkerDoc>('job_workers'),
    meta: database.collection<MetaDoc>('job_meta'),
    counters: database.collection<CounterDoc>('job_counters'),
    targets: database.collection<TargetDoc>('job_targets'),
    audit: database.collection<AuditDoc>('job_audit'),
    rateLimits: database.collection<RateLimitDoc>('job_rate_limits'),
    createBare: async () => {
      for (const name of ['job_counters', 'job_targets', 'job_audit']) {
        await database.createCollection(name).catch((error: unknown) => {
          if ((error as { code?: unknown }).code !== NAMESPACE_EXISTS) throw error;
        });
      }
    },
    databaseTime: async () => {
      const { localTime } = await database.hello();
      if (!(localTime instanceof Date)) throw new Error('the database did not tell its time');
      return localTime;
    },
  };
}
