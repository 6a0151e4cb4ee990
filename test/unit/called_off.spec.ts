/** What a run says of its row when it was told to give up because its pod stops. */
import { describe, expect, it } from '@jest/globals';
import { afterCallOff } from '../../src/jobs/policy/called_off.js';
import type { RunResult } from '../../src/jobs/policy/outcome.js';

const error = new Error('called off');

describe('a run that was called off', () => {
  it.each<RunResult>([
    { kind: 'answered', error },
    { kind: 'timed_out', error },
    { kind: 'unknown', error, target_up: false },
  ])('at least once: $kind charges nobody and blames no target, the row is due again', (result) => {
    expect(afterCallOff(result, 'at_least_once')).toEqual({ kind: 'not_started' });
  });

  it('at most once: a failure is no answer of the target, so the end is unknown and it never starts again', () => {
    const unknown = { kind: 'unknown', error, target_up: true };
    expect(afterCallOff({ kind: 'answered', error }, 'at_most_once')).toEqual(unknown);
  });

  it.each(['at_most_once', 'at_least_once'] as const)(
    '%s: what the handler knows stands: a success, a record that was never sent or cannot be',
    (mode) => {
      const known: RunResult[] = [
        { kind: 'success' },
        { kind: 'completed' },
        { kind: 'unreachable', error },
        { kind: 'rejected', error },
        { kind: 'not_started' },
      ];
      for (const result of known) expect(afterCallOff(result, mode)).toBe(result);
    },
  );
});
