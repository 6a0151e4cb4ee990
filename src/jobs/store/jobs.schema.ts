/** The `jobs` collection: its fields (reference, section 3; design, section 3) and its indexes. Names matter: see below. */
import type { mongo, Types } from 'mongoose';
import type { DeliveryMode, JobLane, JobPriority, JobStatus, JsonValue } from '../jobs.types.js';

export interface HistoryEntry {
  at: Date;
  pod: string;
  ms: number;
  class: string;
  error?: string;
}

export interface JobDoc {
  _id: Types.ObjectId;
  code: string;
  target: string;
  lane: JobLane;
  key?: string;
  /** `key ?? dedupe_key`: hashed into the partition, sorted by in the ordered read. */
  order_key: string;
  partition: number;
  version: number;
  payload: JsonValue;
  dedupe_key: string;
  status: JobStatus;
  attempts: number;
  /** Takeovers that found the row in flight. */
  crashes: number;
  priority: JobPriority;
  /** The earliest time the caller asked for; `next_run_at` never goes below it. */
  run_at: Date;
  next_run_at: Date;
  last_error?: string;
  /** Token of the last mark whose result for this row is known. */
  outcome_token?: string;
  closed_at?: Date;
  trace_id?: string;
  traceparent?: string;
  actor?: Record<string, unknown>;
  headers?: Record<string, string>;
  history?: HistoryEntry[];
  /** Size of the row when it was written, in bytes of BSON: bounds a batch without measuring it again. */
  bytes: number;
  created_at: Date;
  updated_at: Date;
}

export interface InflightMark {
  target: string;
  mode: DeliveryMode;
  token: string;
  ids: Types.ObjectId[];
  at: Date;
}

export interface PartitionDoc {
  partition: number;
  owner: string | null;
  /** New for every acquisition: a pod name alone would not tell two terms of one pod apart. */
  lease_token?: string;
  lease_until: Date | null;
  inflight: InflightMark[];
}

export interface WorkerDoc {
  pod_id: string;
  heartbeat_at: Date;
  started_at: Date;
  host: string;
  version: string;
  lanes: JobLane[];
}

export interface MetaDoc {
  _id: string;
  partitions: number;
}

export interface CounterDoc {
  _id: string;
  seq: number;
}

export interface IndexSpec extends mongo.IndexDescription {
  name: string;
}

const PENDING_FAST = { status: 'PENDING', lane: 'fast' } as const;

export const JOB_INDEXES: readonly IndexSpec[] = [
  {
    name: 'due_fast',
    key: { target: 1, partition: 1, next_run_at: 1, _id: 1, order_key: 1 },
    partialFilterExpression: PENDING_FAST,
  },
  {
    name: 'in_order',
    key: { target: 1, partition: 1, order_key: 1, version: 1, _id: 1 },
    partialFilterExpression: PENDING_FAST,
  },
  { name: 'dedupe', key: { dedupe_key: 1 }, unique: true },
  { name: 'admin', key: { status: 1, _id: -1 } },
];

export const PARTITION_INDEXES: readonly IndexSpec[] = [{ name: 'partition', key: { partition: 1 }, unique: true }];
export const WORKER_INDEXES: readonly IndexSpec[] = [{ name: 'pod_id', key: { pod_id: 1 }, unique: true }];
