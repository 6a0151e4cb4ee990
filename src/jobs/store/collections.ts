/**
 * The engine's collections on the host's connection. Majority concerns on all of them (invariant 14), see `majorityCollections`.
 */
import type { Connection, mongo } from 'mongoose';
import { answerWithin } from '../../common/utils/answers.js';
import { majorityCollections } from '../../common/utils/majority.js';
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

/** `command_timeout_ms`: no command is waited for longer. */
export async function openCollections(
  connection: Connection,
  { command_timeout_ms }: { readonly command_timeout_ms: number },
): Promise<JobsCollections> {
  const { db } = await connection.asPromise();
  if (!db) throw new Error('the Mongoose connection has no database');
  const open = majorityCollections(db, command_timeout_ms);
  return {
    connection,
    jobs: open<JobDoc>('jobs'),
    partitions: open<PartitionDoc>('job_partitions'),
    workers: open<WorkerDoc>('job_workers'),
    meta: open<MetaDoc>('job_meta'),
    counters: open<CounterDoc>('job_counters'),
    targets: open<TargetDoc>('job_targets'),
    audit: open<AuditDoc>('job_audit'),
    rateLimits: open<RateLimitDoc>('job_rate_limits'),
    createBare: async () => {
      for (const name of ['job_counters', 'job_targets', 'job_audit']) {
        const created = answerWithin(command_timeout_ms, `create ${name}`, db.createCollection(name));
        await created.catch((error: unknown) => {
          if ((error as { code?: unknown }).code !== NAMESPACE_EXISTS) throw error;
        });
      }
    },
    databaseTime: async () => {
      const hello = db.admin().command({ hello: 1 }, { readPreference: 'primary' });
      const reply = await answerWithin(command_timeout_ms, 'hello', hello);
      if (!(reply['localTime'] instanceof Date)) throw new Error('the database did not tell its time');
      return reply['localTime'];
    },
  };
}
