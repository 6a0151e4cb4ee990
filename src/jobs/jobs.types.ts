import type { Tx } from '../common/utils/transaction.js';

/** Names of the contract (reference, section 3), and the shapes that handlers and callers see. */

/** `DONE` exists only where a target keeps finished rows (`keep_done_ms`). */
export const JobStatus = { pending: 'PENDING', running: 'RUNNING', dead: 'DEAD', done: 'DONE' } as const;
export type JobStatus = (typeof JobStatus)[keyof typeof JobStatus];

/** fast: short sends, in key order, through partitions. long: minutes of work, through row claims. */
export const JobLane = { fast: 'fast', long: 'long' } as const;
export type JobLane = (typeof JobLane)[keyof typeof JobLane];

/** What happens to a row whose run has an unknown end: never again, or again. */
export const DeliveryMode = { atMostOnce: 'at_most_once', atLeastOnce: 'at_least_once' } as const;
export type DeliveryMode = (typeof DeliveryMode)[keyof typeof DeliveryMode];

/** 1 low, 2 normal, 3 high; orders the long lane. */
export type JobPriority = 1 | 2 | 3;

export type JsonValue = string | number | boolean | null | JsonValue[] | { [key: string]: JsonValue };

/** The job as its handler sees it. */
export interface Job<Payload = JsonValue> {
  /** Hex form of the row's id; the same for every run of the row. */
  readonly id: string;
  readonly target: string;
  readonly code: string;
  /** Ordering key; rows of one key run in `version` order. */
  readonly key?: string;
  readonly version: number;
  readonly payload: Payload;
  readonly dedupe_key: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Answered failures so far. */
  readonly attempts: number;
  /** When an admin last brought it back from DEAD; missing for a job that was never DEAD, or only waits for a retry. */
  readonly retried_at?: Date;
  readonly trace_id?: string;
  readonly traceparent?: string;
  readonly actor?: Readonly<Record<string, unknown>>;
  readonly created_at: Date;
}

/** What a handler may use beside its job. */
export interface JobContext {
  /**
   * Aborts when the run's time is up, an admin cancelled the row or the engine lost it: stop, nothing you still do will
   * be recorded. `signal.reason` says which.
   */
  readonly signal: AbortSignal;
  /** 1 for the first run. */
  readonly attempt: number;
  readonly trace_id?: string;
  readonly traceparent?: string;
  /**
   * Tells admins how far the run is: 0 to 100, and a few words. Long lane only; written with the next renewal at the
   * latest, so calling it often costs nothing. Throws `invalid_progress` for anything but a number from 0 to 100.
   */
  progress(percent: number, note?: string): void;
  /**
   * Exactly-once chaining: runs `work` in the transaction that removes this row, so both happen or neither. Enqueue the
   * next step in it. Throws `claim_lost` (and nothing of `work` is kept) when the row is no longer this run's. Once it
   * resolved the row is gone: whatever the handler does afterwards changes nothing. Not for batch handlers.
   */
  complete(work: (tx: Tx) => Promise<unknown>): Promise<void>;
}

/**
 * Answer of a batch handler: per row in order, `undefined` for success, an error otherwise. Nothing: all succeeded.
 * `SharedFailure` and `JobHeldBack` say what only a row among others can end with.
 */
export type BatchAnswer = readonly (Error | undefined)[] | void;

export type JobHandler<Payload = JsonValue> = (job: Job<Payload>, context: JobContext) => Promise<unknown>;
export type BatchJobHandler<Payload = JsonValue> = (
  jobs: readonly Job<Payload>[],
  context: JobContext,
) => Promise<BatchAnswer>;
