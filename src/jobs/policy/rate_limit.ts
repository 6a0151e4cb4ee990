/**
 * Rate limits: at most `limit` slots of one rate key within any `window_ms`, over all pods; a row starts right after it got
 * its own. Pure; the store's pipeline (store/rate_limit.store.ts) is the same rule as `takeSlots`, and a test holds the two
 * together.
 *
 * A slot is taken at a time and is free again exactly `window_ms` later. Slots that were taken for rows which then did
 * not start are lost throughput, never one start too many.
 */
import type { Job } from '../jobs.types.js';

/** What a target may do per rate key. The window slides: no moment of it is special. */
export interface RateLimit {
  /**
   * What the limit counts by: a recipient, a tenant, or one text for the whole target. 1 to 500 characters. A key that
   * throws or answers anything else is an answered failure of its job.
   */
  key(job: Job): string;
  /**
   * Most slots within any window, exactly. A start follows its slot at once as a rule and by a second at most, so an outside
   * observer may see one start too many in a window, never in one that is a second shorter (decision 10).
   */
  limit: number;
  /** Length of the window, in ms. */
  window_ms: number;
}

export type RateWindow = Pick<RateLimit, 'limit' | 'window_ms'>;

/** Slots that were taken together. */
export interface TakenSlots {
  readonly at: Date;
  readonly n: number;
}

const MAX_LIMIT = 100_000;
const MAX_WINDOW_MS = 31 * 24 * 3600 * 1000;
const MAX_KEY_CHARS = 500;
/** Refused rows are spread over the slots of this time, or of one window where that is longer. */
const MIN_HORIZON_MS = 60_000;

/**
 * Takes up to `want` slots at `now`: how many were free, and what is taken then. Pods' clocks differ a little, and what one
 * has forgotten the other would not count any more: so the time of a key never goes back.
 */
export function takeSlots(
  taken: readonly TakenSlots[],
  { limit, window_ms }: RateWindow,
  now: Date,
  want: number,
): { granted: number; taken: TakenSlots[] } {
  const at = taken.reduce((latest, slots) => (slots.at > latest ? slots.at : latest), now);
  const live = taken.filter((slots) => slots.at.getTime() > at.getTime() - window_ms);
  const granted = Math.max(0, Math.min(want, limit - count(live)));
  return { granted, taken: granted > 0 ? [...live, { at, n: granted }] : live };
}

/**
 * When the refused rows come due: the first when the first slot frees, the next with the next slot, and so on, as if each
 * took its slot. So a backlog is not refused over and over whenever one slot frees. None waits longer than the horizon
 * (or the first slot) though, for rows before it may end in other ways: the rest is spread over the same slots again.
 * `taken` fills the limit.
 */
export function slotTimes(
  taken: readonly TakenSlots[],
  { limit, window_ms }: RateWindow,
  now: Date,
  rows: number,
): Date[] {
  const queue = taken.map(({ at, n }) => ({ free: at.getTime() + window_ms, n })).sort((a, b) => a.free - b.free);
  const horizon = now.getTime() + Math.max(window_ms, MIN_HORIZON_MS);
  const times: Date[] = [];
  let over = count(taken) - limit; // of a limit that was higher before: these must free first
  for (let at = 0; at < queue.length && times.length < rows; at++) {
    const { free, n } = queue[at]!;
    const used = Math.min(n, Math.max(0, over));
    over -= used;
    const usable = Math.min(n - used, rows - times.length);
    if (usable <= 0) continue;
    if (free > horizon && times.length > 0) break;
    for (let slot = 0; slot < usable; slot++) times.push(new Date(free));
    queue.push({ free: free + window_ms, n: usable });
  }
  return Array.from({ length: rows }, (_, row) => times[row % times.length]!);
}

function count(slots: readonly TakenSlots[]): number {
  return slots.reduce((sum, { n }) => sum + n, 0);
}

/** The rate key of a job. Throws what is wrong with it, in words. */
export function rateKeyOf({ key }: RateLimit, job: Job): string {
  const value: unknown = key(job);
  if (typeof value !== 'string' || value.length === 0 || value.length > MAX_KEY_CHARS) {
    const got = typeof value === 'string' ? `${value.length} characters` : typeof value;
    throw new TypeError(`rate_limit.key: expected a string of 1 to ${MAX_KEY_CHARS} characters, got ${got}`);
  }
  if (value.includes('\0') || !value.isWellFormed()) {
    throw new TypeError('rate_limit.key: expected a string without NUL or half a surrogate pair');
  }
  return value;
}

/** What is wrong with a declared limit, in words; nothing when it can be used. */
export function rateLimitFault(raw: RateLimit): string | undefined {
  if (typeof raw !== 'object' || raw === null) return 'expected {key, limit, window_ms}';
  const { key, limit, window_ms, ...rest } = raw;
  const unknown = Object.keys(rest)[0];
  if (unknown !== undefined) return `${unknown}: unknown option`;
  if (typeof key !== 'function') return `key: expected a function of the job, got ${typeof key}`;
  const whole = (value: unknown, most: number): boolean =>
    Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= most;
  if (!whole(limit, MAX_LIMIT)) return `limit: expected a whole number from 1 to ${MAX_LIMIT}, got ${limit}`;
  if (!whole(window_ms, MAX_WINDOW_MS)) {
    return `window_ms: expected a whole number from 1 to ${MAX_WINDOW_MS}, got ${window_ms}`;
  }
  return undefined;
}

/**
 * What of these sequences may start: each of them up to its first refused row, which holds what stands behind it. A
 * refusal behind another one is no matter yet.
 */
export function cutAtRefused<Row>(
  sequences: readonly (readonly Row[])[],
  isRefused: (row: Row) => boolean,
): { start: Row[][]; heads: Row[] } {
  const start: Row[][] = [];
  const heads: Row[] = [];
  for (const sequence of sequences) {
    const first = sequence.findIndex(isRefused);
    const free = first < 0 ? [...sequence] : sequence.slice(0, first);
    if (free.length > 0) start.push(free);
    if (first >= 0) heads.push(sequence[first]!);
  }
  return { start, heads };
}
