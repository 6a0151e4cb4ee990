/** What a run says of its row when it was told to give up: its pod stops, or its claim was lost. Pure. */
import { DeliveryMode } from '../jobs.types.js';
import type { RunResult } from './outcome.js';

/**
 * Its failure may be the call-off itself, so it says nothing about the job. At least once: the row is due again, at no
 * charge. At most once: nobody knows how far the send got, so it must not start again. A success, and what the handler
 * says it never sent, stand as they are.
 */
export function afterCallOff(result: RunResult, mode: DeliveryMode): RunResult {
  if (result.kind !== 'answered' && result.kind !== 'timed_out' && result.kind !== 'unknown') return result;
  if (mode === DeliveryMode.atLeastOnce) return { kind: 'not_started' };
  return result.kind === 'answered' ? { kind: 'unknown', error: result.error, target_up: true } : result;
}
