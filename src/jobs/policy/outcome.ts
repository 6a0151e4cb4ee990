/**
 * Decides how a run ends: error to class, class to what becomes of the row and of its target. Pure: no clock, no
 * database. `store/outcome_update.ts` translates the decision, `lanes/outcome.service.ts` applies it.
 */
import { DeliveryMode } from '../jobs.types.js';
import { retryDelayMs, type RetryPolicy } from './retry.js';

export type RunResult =
  | { readonly kind: 'success' }
  /** The target said no. `speaks_for_many`: one answer for several rows, so nobody can be charged yet. */
  | { readonly kind: 'answered'; readonly error: unknown; readonly speaks_for_many?: boolean }
  | { readonly kind: 'rejected'; readonly error: unknown }
  | { readonly kind: 'unreachable'; readonly error: unknown }
  | { readonly kind: 'unknown'; readonly error: unknown; readonly target_up: boolean }
  /** The handler did not come back within `timeout_ms`, and its target is not to blame (long lane). */
  | { readonly kind: 'timed_out'; readonly error: unknown }
  /** Its handler removed the row itself, in a transaction (`ctx.complete`): nothing is left to write. */
  | { readonly kind: 'completed' }
  /** It did not start and comes due later, at no charge: its rate limit is used up, or another suspect runs. */
  | { readonly kind: 'postponed'; readonly until: Date }
  /** Stood behind a failed row, or time ran out before its turn. */
  | { readonly kind: 'not_started' };

export type RowDecision =
  | { readonly do: 'complete' }
  | { readonly do: 'retry'; readonly attempts: number; readonly next_run_at: Date; readonly error: unknown }
  | { readonly do: 'dead'; readonly attempts: number; readonly error: unknown }
  /** Stays as it is, but its run is accounted for: a takeover must not mistake it for sent. A claim is given back. */
  | { readonly do: 'stamp' }
  /** Waits, at no charge: it never started. A claim is given back. */
  | { readonly do: 'postpone'; readonly next_run_at: Date }
  /** The row is gone already. */
  | { readonly do: 'nothing' };

export type TargetVerdict = 'up' | 'down' | 'silent';

export interface OutcomeRules {
  readonly delivery_mode: DeliveryMode;
  readonly max_attempts: number;
  readonly retry: RetryPolicy;
}

/** Reference, section 4, "handler errors". */
export function classifyError(error: unknown): RunResult {
  const name = fieldOf(error, 'name');
  if (name === 'TargetUnreachable') return { kind: 'unreachable', error };
  if (name === 'TargetOutcomeUnknown')
    return { kind: 'unknown', error, target_up: fieldOf(error, 'target_up') === true };
  if (fieldOf(error, 'dead_now') === true) return { kind: 'rejected', error };
  return { kind: 'answered', error };
}

/** Foreign code throws anything, objects too that cannot be read: that must not leave a run without its result. */
function fieldOf(error: unknown, field: string): unknown {
  try {
    return (error as Record<string, unknown> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

/** One row's error in the answer of a batch handler. Where a marker cannot be meant, the error is an answer to the row. */
export function classifyInBatch(error: Error, row: { alone: boolean; first_of_key: boolean }): RunResult {
  const name = fieldOf(error, 'name');
  if (name === 'JobHeldBack' && !row.first_of_key) return { kind: 'not_started' };
  // Of a row that ran alone nobody else can be meant: not charged, it would run again for ever.
  if (name === 'SharedFailure') {
    return { kind: 'answered', error: fieldOf(error, 'cause'), speaks_for_many: !row.alone };
  }
  return classifyError(error);
}

export function decideRow(
  row: { readonly attempts: number },
  result: RunResult,
  rules: OutcomeRules,
  now: Date,
  /** Chance, asked for only where it is used: from 0 up to, not including, 1. */
  random: () => number,
): RowDecision {
  switch (result.kind) {
    case 'success':
      return { do: 'complete' };
    case 'completed':
      return { do: 'nothing' };
    case 'timed_out':
      // It may be running still. At most once must not start it again; at least once pays an attempt and waits.
      if (rules.delivery_mode === DeliveryMode.atMostOnce) {
        return { do: 'dead', attempts: row.attempts, error: result.error };
      }
      return charge(row.attempts + 1, result.error, rules, now, random);
    case 'answered':
      if (result.speaks_for_many) return { do: 'stamp' };
      return charge(row.attempts + 1, result.error, rules, now, random);
    case 'rejected':
      return { do: 'dead', attempts: row.attempts + 1, error: result.error };
    case 'unknown':
      // It may have landed. Running it again could double it; at least once may, at most once must not.
      if (rules.delivery_mode === DeliveryMode.atMostOnce) {
        return { do: 'dead', attempts: row.attempts, error: result.error };
      }
      return { do: 'stamp' };
    case 'postponed':
      return { do: 'postpone', next_run_at: result.until };
    case 'unreachable':
    case 'not_started':
      return { do: 'stamp' };
  }
}

function charge(attempts: number, error: unknown, rules: OutcomeRules, now: Date, random: () => number): RowDecision {
  if (attempts >= rules.max_attempts) return { do: 'dead', attempts, error };
  const next_run_at = new Date(now.getTime() + retryDelayMs(attempts, rules.retry, random()));
  return { do: 'retry', attempts, next_run_at, error };
}

/** What a run says about its target. A rejected record never left the client, so it says nothing. */
export function targetVerdict(result: RunResult, mode: DeliveryMode): TargetVerdict {
  switch (result.kind) {
    case 'success':
    case 'completed':
    case 'answered':
      return 'up';
    case 'unreachable':
      return 'down';
    case 'unknown':
      return result.target_up && mode === DeliveryMode.atMostOnce ? 'up' : 'down';
    case 'rejected':
    case 'timed_out':
    case 'postponed':
    case 'not_started':
      return 'silent';
  }
}
