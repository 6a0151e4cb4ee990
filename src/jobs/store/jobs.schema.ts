/** The `jobs` collection: its fields (reference, section 3; design, section 3) and its indexes. Names matter: see below. */
import type { Types } from 'mongoose';
import type { IndexSpec } from '../../common/utils/indexes.js';
import type { DeliveryMode, JobLane, JobPriority, JobStatus, JsonValue } from '../jobs.types.js';

export interface HistoryEntry {
  at: Date;
  pod: string;
  ms: number;
  class: string;
  error?: string;
}

export interface JobProgress {
  percent: number;
  note?: string;
  at: Date;
}

export interface CancelRequest {
  at: Date;
  by: string;
  reason: string;
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
  /** Nobody gave `dedupe_key`: it is unique by itself, and `dedupe_given` leaves the row out. Missing in all other rows. */
  generated_key?: true;
  status: JobStatus;
  attempts: number;
  /** Takeovers that found the row in flight (fast lane), leases that expired while it ran (long lane). */
  crashes: number;
  priority: JobPriority;
  /** The earliest time the caller asked for; `next_run_at` never goes below it. */
  run_at: Date;
  next_run_at: Date;
  last_error?: string;
  /** Token of the last mark whose result for this row is known. */
  outcome_token?: string;
  /** Long lane, while RUNNING: pod, fence and lease of the claim. */
  claimed_by?: string;
  claim_token?: string;
  lease_until?: Date;
  started_at?: Date;
  /** Exclusive codes, while RUNNING: a place of the code (policy/claim_plan.ts), one of `max_running`. */
  running_code?: string;
  progress?: JobProgress;
  /** An admin wants this RUNNING row gone: its handler's signal aborts, and however the run ends the row is removed. */
  cancel_requested?: CancelRequest;
  /** When an admin last brought the row back from DEAD: its runs since then were asked for, whatever its time. */
  retried_at?: Date;
  /** When the row went DEAD or DONE. */
  closed_at?: Date;
  /** Set only where retention is switched on; the TTL index deletes the row then. */
  expire_at?: Date;
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
  /**
   * Bumped by every admin action on a row of this partition, in the action's transaction; compared by the mark. So a row
   * that was cancelled, or whose key got an earlier row back, never starts from a page that was read before.
   */
  rev?: number;
}

export interface WorkerDoc {
  pod_id: string;
  heartbeat_at: Date;
  started_at: Date;
  host: string;
  version: string;
  lanes: JobLane[];
  /** Names of the targets it can run. Missing: it does not say (an older version, or too many to write down). */
  targets?: string[];
}

export interface MetaDoc {
  _id: string;
  partitions: number;
}

/** One row per target that is or was paused (design, section 3). Missing: the target is open. */
export interface TargetDoc {
  _id: string;
  state: 'open' | 'paused';
  since: Date;
  reason: string;
  /** `engine`: nothing reached the target; it is probed. `admin`: rests until an admin resumes it. */
  by: 'engine' | 'admin';
  /** Name of the admin who paused or resumed it. */
  actor?: string;
  /** Engine pauses: names the last finding that the target is down, so that only a probe begun after it opens the target. */
  token?: string;
  /** Engine pauses: id of the row whose run found it down; the probe takes another one where it can. */
  cause?: string;
  /** Engine pauses: no probe before this time. */
  probe_at?: Date;
  /** Pod that holds the permit for the one probe, and until when. */
  probe_by?: string;
  probe_until?: Date;
}

/** One row per change an admin made, written in the change's own transaction. */
export interface AuditDoc {
  _id: Types.ObjectId;
  at: Date;
  /** Who: as the host's guard left it on the request. */
  actor: string;
  /** `job.retry`, `jobs.skip`, `target.pause`, `schedule.override`, … */
  action: string;
  /** Id, target name, schedule code; for bulk actions the filter as JSON. */
  subject: string;
  count: number;
  reason?: string;
  /** What it was changed to, where the action does not say: the expression of an override. */
  detail?: string;
}

/** Slots of one rate key of one target (`<target> <key>`) that still count, and until when the document is needed. */
export interface RateLimitDoc {
  _id: string;
  slots: { at: Date; n: number }[];
  expire_at: Date;
}

export interface CounterDoc {
  _id: string;
  seq: number;
}

const PENDING_FAST = { status: 'PENDING', lane: 'fast' } as const;

/**
 * Target first: the rows of a paused or unknown target are never looked at, however many there are. A claim reads one
 * target at a time, where priority and due time come in index order.
 */
const PENDING_LONG = { status: 'PENDING', lane: 'long' } as const;

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
  {
    name: 'due_long',
    key: { target: 1, priority: -1, next_run_at: 1, _id: 1, code: 1 },
    partialFilterExpression: PENDING_LONG,
  },
  { name: 'leases', key: { lease_until: 1 }, partialFilterExpression: { status: 'RUNNING' } },
  {
    name: 'running',
    key: { running_code: 1 },
    unique: true,
    partialFilterExpression: { status: 'RUNNING', running_code: { $exists: true } },
  },
  // `null` matches rows without the field: those of older versions, which say nothing of their key, are in it as well.
  { name: 'dedupe_given', key: { dedupe_key: 1 }, unique: true, partialFilterExpression: { generated_key: null } },
  { name: 'admin', key: { status: 1, _id: -1 } },
  // Costs no enqueue: only DEAD rows are in it. `status` is a key as well, so that counts need no document.
  { name: 'dead', key: { status: 1, target: 1, _id: -1 }, partialFilterExpression: { status: 'DEAD' } },
  {
    name: 'expiry',
    key: { expire_at: 1 },
    expireAfterSeconds: 0,
    partialFilterExpression: { expire_at: { $exists: true } },
  },
];

export const PARTITION_INDEXES: readonly IndexSpec[] = [{ name: 'partition', key: { partition: 1 }, unique: true }];
/** Keys that nothing ran for lately vanish. */
export const RATE_LIMIT_INDEXES: readonly IndexSpec[] = [
  { name: 'expiry', key: { expire_at: 1 }, expireAfterSeconds: 0 },
];
export const WORKER_INDEXES: readonly IndexSpec[] = [{ name: 'pod_id', key: { pod_id: 1 }, unique: true }];
