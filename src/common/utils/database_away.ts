/**
 * Waits for a database that is away. Only for work that may be repeated: an attempt that failed may have been carried
 * out. By shape, not by class: the host's driver may be another copy.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../ports/clock.js';

const AWAY_NAMES = new Set([
  'MongoNetworkError',
  'MongoNetworkTimeoutError',
  'MongoServerSelectionError',
  'MongooseServerSelectionError',
  'MongoPoolClearedError',
  'PoolClearedOnNetworkError',
  'DatabaseTooSlow',
  'NoAnswerError',
  'CommitUnknownError',
]);

/** Unreachable, shutting down, stepping down, not the primary (any more). */
const AWAY_CODES = new Set([6, 7, 89, 91, 189, 9001, 10107, 11600, 11602, 13435, 13436]);

/**
 * A connection that breaks in the middle of a command's write: the driver hands on what the socket threw, under no name of
 * its own. Calls of other services end like that too, so whoever runs code of others has to bound what this answers.
 */
const BROKEN_CALLS = new Set(['read', 'write']);
const BROKEN_CODES = new Set([
  'ECONNABORTED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETDOWN',
  'ENETRESET',
  'ENETUNREACH',
  'ENOTCONN',
  'EPIPE',
  'ETIMEDOUT',
]);

/** This pod has closed its own connection, since it ends: no use in waiting, and no fault of whoever meets it. */
const CLOSED_NAMES = new Set([
  'MongoClientClosedError',
  'MongoNotConnectedError',
  'MongoPoolClosedError',
  'MongoServerClosedError',
  'MongoTopologyClosedError',
]);

const MOST_CAUSES = 10;

/** The database could not be reached, or is between two primaries; what was asked of it is not at fault. */
export function isDatabaseAway(error: unknown): boolean {
  const { name, code, syscall } = (error ?? {}) as { name?: unknown; code?: unknown; syscall?: unknown };
  if (AWAY_NAMES.has(name as string) || AWAY_CODES.has(code as number)) return true;
  return BROKEN_CALLS.has(syscall as string) && BROKEN_CODES.has(code as string);
}

/**
 * The same of an error that somebody made of another one: its causes count, as deep as anybody nests them. A connection that
 * this pod has closed counts as well.
 */
export function comesOfDatabaseAway(error: unknown): boolean {
  let at = error;
  for (let depth = 0; depth < MOST_CAUSES && typeof at === 'object' && at !== null; depth++) {
    if (isDatabaseAway(at) || CLOSED_NAMES.has((at as Error).name)) return true;
    at = (at as { cause?: unknown }).cause;
  }
  return false;
}

export interface Patience {
  readonly clock: Pick<Clock, 'monotonic'>;
  /** No attempt begins later than this, in ms. */
  readonly forMs: number;
  /** Between two attempts, in ms. */
  readonly everyMs: number;
  onAway(error: unknown, leftMs: number): void;
}

/** Runs `work` until the database is there. Throws what it threw when patience is over, and any other error at once. */
export async function untilThere<T>(work: () => Promise<T>, { clock, forMs, everyMs, onAway }: Patience): Promise<T> {
  const last = clock.monotonic() + forMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      const left = last - clock.monotonic() - everyMs;
      if (!isDatabaseAway(error) || left < 0) throw error;
      onAway(error, left);
      await sleep(everyMs); // must keep the process alive: nothing else may do so at boot
    }
  }
}
