/**
 * Translates decisions into fenced writes. Pure: builds documents, sends nothing.
 *
 * The fence of a fast-lane row: it is PENDING and untouched since it was read (attempts, outcome_token). A takeover
 * that judged the row, an admin who retried or skipped it, or an earlier copy of this very write changed one of the
 * three, and the late write matches nothing. So every write here may be repeated after a lost reply.
 */
import type { mongo } from 'mongoose';
import { historyErrorText, lastErrorText } from '../policy/failure_text.js';
import type { RowDecision } from '../policy/outcome.js';
import type { HistoryEntry, JobDoc } from './jobs.schema.js';

export interface RunRecord {
  readonly token: string;
  readonly pod: string;
  readonly now: Date;
  readonly ms: number;
  readonly class: string;
  readonly history_size: number;
}

type Operation = mongo.AnyBulkWriteOperation<JobDoc>;

/** Only the fields the fence names. */
export type ReadRow = Pick<JobDoc, '_id' | 'attempts' | 'outcome_token'>;

function fence(row: ReadRow): mongo.Filter<JobDoc> {
  return { _id: row._id, status: 'PENDING', attempts: row.attempts, outcome_token: tokenAsRead(row.outcome_token) };
}

/** `null` matches a field that is not there. */
function tokenAsRead(token: string | undefined): mongo.Condition<string | undefined> {
  return (token ?? null) as mongo.Condition<string | undefined>;
}

/** The update of a row that failed: a retry, or DEAD. */
export function failureOperation(
  row: ReadRow,
  decision: Extract<RowDecision, { do: 'retry' | 'dead' }>,
  run: RunRecord,
): Operation {
  const common = {
    attempts: decision.attempts,
    last_error: lastErrorText(decision.error),
    outcome_token: run.token,
    updated_at: run.now,
  };
  const state =
    decision.do === 'dead' ? { status: 'DEAD' as const, closed_at: run.now } : { next_run_at: decision.next_run_at };
  return {
    updateOne: {
      filter: fence(row),
      update: { $set: { ...common, ...state }, ...historyPush(decision.error, run) },
    },
  };
}

/** Rows whose run did not happen, or says nothing about them: accounted for, otherwise unchanged. */
export function stampOperations(rows: readonly ReadRow[], token: string): Operation[] {
  return [...groupByToken(rows)].map(([asRead, group]) => ({
    updateMany: {
      filter: { _id: { $in: group.map((row) => row._id) }, status: 'PENDING', outcome_token: tokenAsRead(asRead) },
      update: { $set: { outcome_token: token } },
    },
  }));
}

function groupByToken(rows: readonly ReadRow[]): Map<string | undefined, ReadRow[]> {
  const groups = new Map<string | undefined, ReadRow[]>();
  for (const row of rows) groups.set(row.outcome_token, [...(groups.get(row.outcome_token) ?? []), row]);
  return groups;
}

/** A judgement at takeover. `outcome_token` becomes the mark's token, so judging twice changes nothing. */
export function takeoverOperation(
  row: ReadRow & Pick<JobDoc, 'crashes'>,
  verdict: { do: 'dead' | 'count'; crashes: number; reason?: string },
  run: RunRecord,
): Operation {
  const common = { crashes: verdict.crashes, outcome_token: run.token, updated_at: run.now };
  if (verdict.do === 'count') {
    return { updateOne: { filter: { ...fence(row), crashes: row.crashes }, update: { $set: common } } };
  }
  const dead = { status: 'DEAD' as const, closed_at: run.now, last_error: verdict.reason ?? '' };
  return {
    updateOne: {
      filter: { ...fence(row), crashes: row.crashes },
      update: { $set: { ...common, ...dead }, ...historyPush(verdict.reason, run) },
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
    error: historyErrorText(error),
  };
  return { $push: { history: { $each: [entry], $slice: -run.history_size } } };
}
