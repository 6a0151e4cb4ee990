/** Which partition a row belongs to, and how many partitions a pod should own. Pure. */
import { hash } from 'node:crypto';

/** `md5(order_key) mod count`, over the whole 128 bits; part of the contract: never change it under rows that wait. */
export function partitionOf(orderKey: string, count: number): number {
  const digits = hash('md5', orderKey, 'hex');
  let rest = 0;
  // Eight digits at a time: exact for any count below 2 ** 21.
  for (let at = 0; at < digits.length; at += 8) {
    rest = (rest * 2 ** 32 + parseInt(digits.slice(at, at + 8), 16)) % count;
  }
  return rest;
}

/**
 * Fair share of a pod: everybody gets the floor, and the first pods by name the remainder. Every pod computes the same
 * numbers from the same list, they add up to the total, and a pod that joins or leaves moves few partitions.
 */
export function fairShare(total: number, livePods: readonly string[], pod: string): number {
  const pods = [...new Set([...livePods, pod])].sort();
  const rank = pods.indexOf(pod);
  return Math.floor(total / pods.length) + (rank < total % pods.length ? 1 : 0);
}
