/**
 * Lossy jobs may be lost, but not untold: what was committed ran, waits in Redis, or was counted as dropped. Each has one
 * try. Pure.
 */
import { groupBy, type ProducedRow, type Violation } from './evidence.js';
import type { LedgerLine } from './ledger.js';
import { isLossy } from './pod_settings.js';

export function untoldJobs(
  produced: readonly ProducedRow[],
  lines: readonly LedgerLine[],
  waiting: readonly string[],
): Violation[] {
  const seen = new Set([...waiting, ...lines.flatMap((line) => (line.what === 'start' ? [line.n] : []))]);
  const missing = produced.filter(({ n, target }) => isLossy(target) && !seen.has(n)).map(({ n }) => n);
  // A job that failed is counted as well, but it ran.
  const drops = lines.flatMap((line) => (line.what === 'dropped' && line.reason !== 'failed' ? [line.count] : []));
  const told = drops.reduce((sum, count) => sum + count, 0);
  if (missing.length <= told) return [];
  const text = `${missing.length} lossy jobs are gone, ${told} were counted: ${missing.slice(0, 10).join(', ')}`;
  return [{ invariant: 'lossy', text }];
}

/** Also after an answered failure, which `doubled` lets pass: nothing tries a lossy job again. */
export function retriedJobs(lines: readonly LedgerLine[]): Violation[] {
  const starts = lines.flatMap((line) => (line.what === 'start' && isLossy(line.target) ? [line] : []));
  return [...groupBy(starts, ({ n }) => n)]
    .filter(([, runs]) => runs.length > 1)
    .map(([n, runs]) => {
      const pods = runs.map(({ pod }) => pod).join(', ');
      return { invariant: 'lossy', text: `${n} ran ${runs.length} times: ${pods}` };
    });
}
