/**
 * Which rows of an ordered page may run, and in what batches. Pure.
 *
 * A page comes sorted by (order_key, version, _id) and holds each of its keys from the head on without a gap, so order
 * (invariant 4) needs no further check: a key's rows run until the first one that is not due, which holds the rest.
 */
export interface OrderedRow {
  readonly order_key: string;
  readonly next_run_at: Date;
  readonly crashes: number;
  /** Size of the stored row. */
  readonly bytes: number;
}

export interface HeldKey<Row> {
  readonly head: Row;
  /** True when due followers may stand behind it, seen in the page or cut off at its end. */
  readonly may_have_due_followers: boolean;
}

export interface PagePlan<Row> {
  /** Per key, in order, what may run now. */
  readonly sequences: readonly (readonly Row[])[];
  readonly held: readonly HeldKey<Row>[];
}

export function planPage<Row extends OrderedRow>(page: readonly Row[], now: Date, full: boolean): PagePlan<Row> {
  const sequences: Row[][] = [];
  const held: HeldKey<Row>[] = [];
  for (let start = 0; start < page.length;) {
    let end = start + 1;
    while (end < page.length && page[end]!.order_key === page[start]!.order_key) end++;
    const rows = page.slice(start, end);
    const cut = full && end === page.length;
    const firstWaiting = rows.findIndex((row) => row.next_run_at > now);
    const runnable = firstWaiting < 0 ? rows : rows.slice(0, firstWaiting);
    if (runnable.length > 0) sequences.push(runnable);
    if (firstWaiting >= 0) {
      const followers = rows.slice(firstWaiting + 1);
      const due = followers.some((row) => row.next_run_at <= now);
      held.push({ head: rows[firstWaiting]!, may_have_due_followers: due || cut });
    }
    start = end;
  }
  return { sequences, held };
}

export interface BatchLimits {
  readonly max_rows: number;
  readonly max_bytes: number;
  /** Default: no bound. */
  readonly max_per_key?: number;
}

/**
 * Cuts the next batch off the sequences and returns what remains. A suspect (found in flight by a takeover, or one of
 * several rows that shared an error) runs alone, so that it can be charged, or can kill its pod, by itself.
 */
export function takeBatch<Row extends OrderedRow>(
  sequences: readonly (readonly Row[])[],
  limits: BatchLimits,
  suspect: (row: Row) => boolean,
): { batch: Row[][]; rest: (readonly Row[])[] } {
  const batch: Row[][] = [];
  const rest: (readonly Row[])[] = [];
  let rows = 0;
  let bytes = 0;
  let closed = false;
  for (const sequence of sequences) {
    let taken = 0;
    while (!closed && taken < Math.min(sequence.length, limits.max_per_key ?? Infinity)) {
      const row = sequence[taken]!;
      const alone = suspect(row);
      const fits = rows < limits.max_rows && bytes + row.bytes <= limits.max_bytes;
      if (rows > 0 && (alone || !fits)) {
        closed = true;
        break;
      }
      rows++;
      bytes += row.bytes;
      taken++;
      if (alone) closed = true;
    }
    if (taken > 0) batch.push(sequence.slice(0, taken));
    if (taken === 0) rest.push(sequence);
    else if (taken < sequence.length) rest.push(sequence.slice(taken));
  }
  return { batch, rest };
}
