/**
 * The kinds of rows that a round must have run, each lane in each delivery mode, so that no promise is taken for kept
 * because nothing was there to break it. Rows of schedules do not count: they come whatever happens. Pure.
 */
import type { Violation } from './evidence.js';
import type { LedgerLine } from './ledger.js';
import { isAtMostOnce, isLossy } from './pod_settings.js';

export const FAST_KINDS = ['fast, at most once', 'fast, at least once'] as const;
export const KINDS = [...FAST_KINDS, 'long, at most once', 'long, at least once'] as const;
export type Kind = (typeof KINDS)[number];

/** None of what has no row of its own, or a handler of the bench's own. */
export function kindOf(target: string): Kind | undefined {
  const lane = (['fast', 'long'] as const).find((each) => target.startsWith(`${each}:`));
  if (!lane || isLossy(target)) return undefined;
  return `${lane}, ${isAtMostOnce(target) ? 'at most once' : 'at least once'}`;
}

/** Of those that are expected: what none of these targets is of. */
export function kindsWithout(targets: readonly string[], expected: readonly Kind[] = KINDS): Kind[] {
  const found = new Set(targets.map(kindOf));
  return expected.filter((kind) => !found.has(kind));
}

/** Of those that are expected: what no ledger shows a start of. */
export function missingKinds(lines: readonly LedgerLine[], expected?: readonly Kind[]): Violation[] {
  const started = lines.flatMap((line) => (line.what === 'start' ? line.target : []));
  return kindsWithout(started, expected).map((kind) => {
    return { invariant: 'scenario', text: `no row was run that is ${kind}` };
  });
}
