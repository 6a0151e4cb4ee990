/** Which due rows a pod claims: the most urgent of all its targets, within its slots and each code's places. Pure. */

export interface Candidate {
  readonly _id: { toHexString(): string };
  readonly target: string;
  readonly code: string;
  readonly priority: number;
  readonly next_run_at: Date;
}

export interface ClaimLimits {
  /** Free slots of the pod. */
  readonly slots: number;
  /** Free places per target on this pod. */
  readonly perTarget: ReadonlyMap<string, number>;
  /** Targets whose codes are limited over all pods: places per code. */
  readonly maxRunning: ReadonlyMap<string, number>;
  /** Places taken per code, over all pods. */
  readonly running: ReadonlyMap<string, number>;
}

/** Where a pod stands among the pods that claim: which rows it leaves to the others while all have enough. */
export interface Share {
  readonly rank: number;
  readonly count: number;
}

/**
 * With a backlog every pod reads the same most urgent rows, and all but one lose each of them. So while a pod's own share
 * of what it read keeps at least half of its slots busy, it leaves the others' rows alone; else it takes whatever there
 * is. Rows of a pod that is full or gone gather at the head of what the others read, until they are taken too.
 */
export function ownShare<Row extends Candidate>(rows: readonly Row[], slots: number, share: Share): readonly Row[] {
  if (share.count === 1) return rows;
  const own = rows.filter((row) => Number.parseInt(row._id.toHexString().slice(-4), 16) % share.count === share.rank);
  return own.length >= slots / 2 ? own : rows;
}

/** By priority, then due time, then age; rows of a code beyond its places wait. */
export function planClaims<Row extends Candidate>(candidates: readonly Row[], limits: ClaimLimits): Row[] {
  const left = new Map(limits.perTarget);
  const running = new Map(limits.running);
  const chosen: Row[] = [];
  for (const row of [...candidates].sort(byUrgency)) {
    if (chosen.length >= limits.slots) break;
    const places = left.get(row.target) ?? 0;
    if (places <= 0) continue;
    const most = limits.maxRunning.get(row.target);
    if (most !== undefined) {
      const taken = running.get(row.code) ?? 0;
      if (taken >= most) continue;
      running.set(row.code, taken + 1);
    }
    left.set(row.target, places - 1);
    chosen.push(row);
  }
  return chosen;
}

function byUrgency(a: Candidate, b: Candidate): number {
  return (
    b.priority - a.priority ||
    a.next_run_at.getTime() - b.next_run_at.getTime() ||
    (a._id.toHexString() < b._id.toHexString() ? -1 : 1)
  );
}

/** No code can hold it, so that no place of a code bears the name of another code. */
const SEPARATOR = '\0';

/** The name of one place of a code: `code` for the first, `code`, NUL and n for the n-th. */
export const placeOf = (code: string, place: number): string => (place === 1 ? code : `${code}${SEPARATOR}${place}`);

/** The place that a RUNNING row of the code holds. Pods of before separate by `#`: for them it is the same place. */
export const heldPlace = (code: string, name: string): string =>
  name === code ? name : placeOf(code, Number(name.slice(code.length + SEPARATOR.length)));

/** The places of a code that nobody holds, lowest first. */
export function freePlaces(code: string, most: number, taken: ReadonlySet<string>): string[] {
  return Array.from({ length: most }, (_, index) => placeOf(code, index + 1)).filter((place) => !taken.has(place));
}
