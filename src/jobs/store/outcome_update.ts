/**
 * Translates decisions into fenced writes, for both lanes. Pure: builds documents, sends nothing.
 *
 * The fence of a fast-lane row: it is PENDING and untouched since it was read (attempts, outcome_token). A takeover
 * that judged the row, an admin who retried or skipped it, or an earlier copy of this very write changed one of the
 * three, and the late write matches nothing.
 *
 * The fence of a long-lane row: it is RUNNING under the token of this very claim. A reclaim, a new claim by the same
 * pod, or an earlier copy of this write ends that. A row an admin wants cancelled never goes back to waiting: each write
 * that would keep it stands beside a delete for exactly that case, and one of the two matches.
 *
 * So every write here may be repeated after a lost reply.
 */
import type { mongo } from 'mongoose';
import { JobLane, JobStatus } from '../jobs.types.js';
import { historyErrorText, lastErrorText } from '../policy/failure_text.js';
import type { RowDecision } from '../policy/outcome.js';
import type { HistoryEntry, JobDoc } from './jobs.schema.js';

export interface RunRecord {
  /** Fast lane: token of the mark under which the rows ran. */
  readonly token: string;
  readonly pod: string;
  readonly now: Date;
  readonly ms: number;
  readonly class: string;
  readonly history_size: number;
  readonly keep_dead_ms?: number | undefined;
}

export type Operation = mongo.AnyBulkWriteOperation<JobDoc>;

/** Only the fields the fence names. */
export type ReadRow = Pick<JobDoc, '_id' | 'lane' | 'attempts' | 'outcome_token' | 'claim_token'>;

/** What a claim wrote and its end takes away again. */
export const CLAIM_FIELDS = {
  claimed_by: '',
  claim_token: '',
  lease_until: '',
  started_at: '',
  running_code: '',
  progress: '',
} as const;

export function fenceOf(row: ReadRow): mongo.Filter<JobDoc> {
  if (row.lane === JobLane.long) {
    return { _id: row._id, status: JobStatus.running, claim_token: row.claim_token ?? NO_CLAIM };
  }
  const outcome_token = tokenAsRead(row.outcome_token);
  return { _id: row._id, status: JobStatus.pending, attempts: row.attempts, outcome_token };
}

/** A long row without a token was never claimed: its fence must match nothing, not every row without a token. */
const NO_CLAIM = 'no claim';

/** `null` matches a field that is not there. */
function tokenAsRead(token: string | undefined): mongo.Condition<string | undefined> {
  return (token ?? null) as mongo.Condition<string | undefined>;
}

const NOT_CANCELLED = { cancel_requested: { $exists: false } } as const;
const CANCELLED = { cancel_requested: { $exists: true } } as const;

/** An update that keeps the row, or its removal where an admin cancelled it meanwhile. */
function unlessCancelled(row: ReadRow, update: mongo.UpdateFilter<JobDoc>): Operation[] {
  const fence = fenceOf(row);
  if (row.lane !== JobLane.long) return [{ updateOne: { filter: fence, update } }];
  return [
    { updateOne: { filter: { ...fence, ...NOT_CANCELLED }, update } },
    { deleteOne: { filter: { ...fence, ...CANCELLED } } },
  ];
}

/** The update of a row that failed: a retry, or DEAD. */
export function failureOperations(
  row: ReadRow,
  decision: Extract<RowDecision, { do: 'retry' | 'dead' }>,
  run: RunRecord,
): Operation[] {
  return unlessCancelled(row, failureUpdate(row, decision, run));
}

function failureUpdate(
  row: ReadRow,
  decision: Extract<RowDecision, { do: 'retry' | 'dead' }>,
  run: RunRecord,
): mongo.UpdateFilter<JobDoc> {
  const common = { attempts: decision.attempts, last_error: lastErrorText(decision.error), updated_at: run.now };
  const state =
    decision.do === 'dead'
      ? deadFields(run)
      : { next_run_at: decision.next_run_at, ...(row.lane === JobLane.long && { status: JobStatus.pending }) };
  return {
    $set: { ...common, ...state, ...(row.lane !== JobLane.long && { outcome_token: run.token }) },
    ...(row.lane === JobLane.long && { $unset: CLAIM_FIELDS }),
    ...historyPush(decision.error, run),
  };
}

function deadFields(run: RunRecord): { status: 'DEAD'; closed_at: Date; expire_at?: Date } {
  const { now, keep_dead_ms } = run;
  return {
    status: JobStatus.dead,
    closed_at: now,
    ...(keep_dead_ms !== undefined && { expire_at: new Date(now.getTime() + keep_dead_ms) }),
  };
}

/** Rows that never started and wait for their turn: due later, otherwise as they were. A claim is given back. */
export function postponeOperations(row: ReadRow, next_run_at: Date): Operation[] {
  if (row.lane !== JobLane.long) return unlessCancelled(row, { $set: { next_run_at } });
  return unlessCancelled(row, { $set: { next_run_at, status: JobStatus.pending }, $unset: CLAIM_FIELDS });
}

/** A finished row that its target keeps, so that its `dedupe_key` goes on rejecting replays. */
export function doneOperation(row: ReadRow, now: Date, keep_done_ms: number): Operation {
  return { updateOne: { filter: fenceOf(row), update: doneUpdate(now, keep_done_ms) } };
}

export function doneUpdate(now: Date, keep_done_ms: number): mongo.UpdateFilter<JobDoc> {
  return {
    $set: {
      status: JobStatus.done,
      closed_at: now,
      updated_at: now,
      expire_at: new Date(now.getTime() + keep_done_ms),
    },
    $unset: { ...CLAIM_FIELDS, cancel_requested: '' as const },
  };
}

/**
 * Rows whose run did not happen, or says nothing about them. Fast lane: accounted for, otherwise unchanged. Long lane:
 * the claim is given back, and the row is due as before.
 */
export function stampOperations(rows: readonly ReadRow[], token: string): Operation[] {
  const fast = rows.filter((row) => row.lane !== JobLane.long);
  const long = rows.filter((row) => row.lane === JobLane.long);
  return [
    ...[...groupByToken(fast)].map(([asRead, group]) => ({
      updateMany: {
        filter: {
          _id: { $in: group.map((row) => row._id) },
          status: JobStatus.pending,
          outcome_token: tokenAsRead(asRead),
        },
        update: { $set: { outcome_token: token } },
      },
    })),
    ...long.flatMap((row) => unlessCancelled(row, { $set: { status: JobStatus.pending }, $unset: CLAIM_FIELDS })),
  ];
}

function groupByToken(rows: readonly ReadRow[]): Map<string | undefined, ReadRow[]> {
  const groups = new Map<string | undefined, ReadRow[]>();
  for (const row of rows) groups.set(row.outcome_token, [...(groups.get(row.outcome_token) ?? []), row]);
  return groups;
}

/**
 * Deletes of finished rows, few however many rows: one per claim token on the long lane (a row that was claimed again
 * meanwhile, even by this pod, runs under another), one for all on the fast lane.
 */
export function deleteOperations(rows: readonly ReadRow[]): Operation[] {
  const fast = rows.filter((row) => row.lane !== JobLane.long).map((row) => row._id);
  const byClaim = new Map<string, ReadRow['_id'][]>();
  for (const row of rows) {
    if (row.lane !== JobLane.long) continue;
    const token = row.claim_token ?? NO_CLAIM;
    byClaim.set(token, [...(byClaim.get(token) ?? []), row._id]);
  }
  const operations: Operation[] = [...byClaim].map(([claim_token, ids]) => ({
    deleteMany: { filter: { _id: { $in: ids }, status: JobStatus.running, claim_token } },
  }));
  if (fast.length > 0) operations.push({ deleteMany: { filter: { _id: { $in: fast }, status: JobStatus.pending } } });
  return operations;
}

/** A judgement at takeover. `outcome_token` becomes the mark's token, so judging twice changes nothing. */
export function takeoverOperation(
  row: ReadRow & Pick<JobDoc, 'crashes'>,
  verdict: { do: 'dead' | 'count'; crashes: number; reason?: string },
  run: RunRecord,
): Extract<Operation, { updateOne: unknown }> {
  const common = { crashes: verdict.crashes, outcome_token: run.token, updated_at: run.now };
  const filter = { ...fenceOf(row), crashes: row.crashes };
  if (verdict.do === 'count') return { updateOne: { filter, update: { $set: common } } };
  const dead = { ...deadFields(run), last_error: verdict.reason ?? '' };
  return { updateOne: { filter, update: { $set: { ...common, ...dead }, ...historyPush(verdict.reason, run) } } };
}

/**
 * A long-lane row whose lease expired while it ran: due again, or DEAD. The fence names the expired claim and that it is
 * still expired, so that a renewal which came late but came first wins.
 */
export function reclaimOperation(
  row: ReadRow & Pick<JobDoc, 'crashes'>,
  verdict: { do: 'dead' | 'count'; crashes: number; reason?: string },
  run: RunRecord,
): Extract<Operation, { updateOne: unknown }> {
  const filter = { ...fenceOf(row), lease_until: { $lte: run.now }, ...NOT_CANCELLED };
  const common = { crashes: verdict.crashes, updated_at: run.now };
  const state =
    verdict.do === 'dead'
      ? { ...deadFields(run), last_error: verdict.reason ?? '' }
      : { status: JobStatus.pending, next_run_at: run.now };
  return {
    updateOne: {
      filter,
      update: { $set: { ...common, ...state }, $unset: CLAIM_FIELDS, ...historyPush(verdict.reason, run) },
    },
  };
}

function historyPush(error: unknown, run: RunRecord): { $push?: { history: object } } {
  if (run.history_size === 0) return {};
  const entry: HistoryEntry = {
    at: run.now,
    pod: run.pod,
    ms: run.ms,
    class: run.class,
    ...(error !== undefined && { error: historyErrorText(error) }),
  };
  return { $push: { history: { $each: [entry], $slice: -run.history_size } } };
}
