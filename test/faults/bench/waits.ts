/** How long rows waited for their first start, from the moment on at which their transaction was told committed. Pure. */
import type { LedgerLine } from './ledger.js';

/** In ms, of the rows committed in this time whose name `counts`. A row that never started counts as `Infinity`. */
export function waitsOf(
  lines: readonly LedgerLine[],
  { from, to, counts }: { from: number; to: number; counts: (n: string) => boolean },
): number[] {
  const starts = new Map<string, number>();
  for (const line of lines) if (line.what === 'start' && !starts.has(line.n)) starts.set(line.n, line.at);
  return lines.flatMap((line) => {
    if (line.what !== 'hook' || line.at < from || line.at > to) return [];
    return line.rows.filter(counts).map((n) => Math.max(0, (starts.get(n) ?? Infinity) - line.at));
  });
}

/** The value below which this share of them lies; 0 of none. */
export function quantile(values: readonly number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.floor(values.length * share))] ?? 0;
}
