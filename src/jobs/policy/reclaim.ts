/** What becomes of a long-lane row whose lease expired while it ran. Pure. */
import { DeliveryMode } from '../jobs.types.js';

export type ReclaimVerdict =
  | { readonly do: 'dead'; readonly crashes: number; readonly reason: string }
  | { readonly do: 'count'; readonly crashes: number; readonly reason: string };

export const LEASE_EXPIRED = 'its lease expired while it ran';

export function judgeExpired(mode: DeliveryMode, crashes: number, maxCrashes: number): ReclaimVerdict {
  const counted = crashes + 1;
  // It may have done its work, and nobody is left to tell: at most once means never again (invariant 3).
  if (mode === DeliveryMode.atMostOnce) return { do: 'dead', crashes: counted, reason: LEASE_EXPIRED };
  if (counted < maxCrashes) return { do: 'count', crashes: counted, reason: LEASE_EXPIRED };
  return {
    do: 'dead',
    crashes: counted,
    reason: `${LEASE_EXPIRED} for the ${counted}. time: it may be what kills its pods`,
  };
}
