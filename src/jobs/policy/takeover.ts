/** What becomes of a row that the last owner of its partition left in flight. Pure. */
import { DeliveryMode } from '../jobs.types.js';

export type TakeoverVerdict =
  | { readonly do: 'dead'; readonly crashes: number; readonly reason: string }
  | { readonly do: 'count'; readonly crashes: number };

/**
 * Crashes that make a row a suspect: it was running twice when its pod died, so it may be what killed it, or only its
 * neighbour. Suspects run one at a time, or a neighbour would be charged with each death until it is DEAD as well.
 */
export const SUSPECT_CRASHES = 2;

export const TAKEN_OVER = 'in flight when its partition was taken over';

export function judgeTakeover(mode: DeliveryMode, crashes: number, maxCrashes: number): TakeoverVerdict {
  // It may have been sent, and nobody is left to tell: at most once means never again (invariant 3).
  if (mode === DeliveryMode.atMostOnce) return { do: 'dead', crashes, reason: TAKEN_OVER };
  const counted = crashes + 1;
  if (counted < maxCrashes) return { do: 'count', crashes: counted };
  return {
    do: 'dead',
    crashes: counted,
    reason: `${TAKEN_OVER} for the ${counted}. time: it may be what kills its pods`,
  };
}
