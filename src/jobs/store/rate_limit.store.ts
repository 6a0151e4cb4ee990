/**
 * The slots of rate limits: one document per target and key, updated by one atomic pipeline that forgets slots whose
 * window is over, grants what is free, and remembers what it granted.
 *
 * Who else may write it? Every pod, at any moment: the pipeline runs on the document as it is then, so what it grants is
 * decided once. What if we die after it, or its reply is lost? The slots are taken and nothing starts: throughput is
 * lost for one window, the limit is not passed. What if two pods are the first? Both begin the document, one of them is
 * told of the duplicate, and both ask again. `now` is the database's time as the pod measured it. Idle documents vanish by
 * the TTL index.
 */
import { takeSlots, type RateWindow, type TakenSlots } from '../policy/rate_limit.js';
import type { JobsCollections } from './collections.js';
import { isDuplicateKey } from './write_errors.js';

/** The TTL monitor's clock need not be ours: a document stays this much longer than its last slot counts. */
const KEEP_LONGER_MS = 60_000;
/** A document that was begun is there, unless it expires in the same moment. */
const MAX_TRIES = 5;

export interface SlotsAnswer {
  /** How many of the wanted slots are ours. */
  readonly granted: number;
  /** What is taken now, ours included. */
  readonly taken: readonly TakenSlots[];
}

export async function takeRateSlots(
  { rateLimits }: JobsCollections,
  ask: { target: string; key: string; window: RateWindow; now: Date; want: number },
): Promise<SlotsAnswer> {
  const { window, now, want } = ask;
  for (let tries = 1; tries <= MAX_TRIES; tries++) {
    const before = await rateLimits.findOneAndUpdate({ _id: idOf(ask) }, pipeline(window, now, want), {
      returnDocument: 'before',
    });
    // What the pipeline made of the document, worked out from what it had found.
    if (before) return takeSlots(before.slots, window, now, want);
    await begin(rateLimits, idOf(ask), keptUntil(now, window));
  }
  throw new Error(`rate limit of ${idOf(ask)}: its document is gone whenever it is asked for`);
}

/** Not by an upsert: of two first ones at once, some servers keep the second and forget what the first had granted. */
async function begin(rateLimits: JobsCollections['rateLimits'], _id: string, expire_at: Date): Promise<void> {
  try {
    await rateLimits.insertOne({ _id, slots: [], expire_at });
  } catch (error) {
    if (!isDuplicateKey(error)) throw error;
  }
}

const keptUntil = (now: Date, { window_ms }: RateWindow): Date => new Date(now.getTime() + window_ms + KEEP_LONGER_MS);

/** Target names hold no blanks, so this is one document for one pair. */
function idOf({ target, key }: { target: string; key: string }): string {
  return `${target} ${key}`;
}

/** `takeSlots` in the server's words. */
function pipeline(window: RateWindow, now: Date, want: number): object[] {
  const { limit, window_ms } = window;
  const keepUntil = keptUntil(now, window);
  const at = { $max: [now, { $max: '$slots.at' }] };
  const over = { $subtract: [at, window_ms] };
  const live = { $filter: { input: { $ifNull: ['$slots', []] }, cond: { $gt: ['$$this.at', over] } } };
  const granted = { $max: [0, { $min: [want, { $subtract: [limit, { $sum: '$slots.n' }] }] }] };
  const more = { $cond: [{ $gt: [granted, 0] }, [{ at, n: granted }], []] };
  return [
    { $set: { slots: live } },
    { $set: { slots: { $concatArrays: ['$slots', more] }, expire_at: { $max: ['$expire_at', keepUntil] } } },
  ];
}
