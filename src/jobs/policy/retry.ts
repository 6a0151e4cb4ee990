/** When a row that was answered with a failure runs again. Pure. */

/** Waits as listed after the first, second, … failure; the last one repeats where a target allows more attempts. */
export interface DelaysPolicy {
  readonly delays_ms: readonly number[];
  /** Share of the delay added at random: never earlier than promised, and not all together. */
  readonly jitter: number;
}

/** Doubles from `base_ms` up to `cap_ms`, with equal jitter: at least half of it, the other half at random. */
export interface ExponentialPolicy {
  readonly base_ms: number;
  readonly cap_ms: number;
}

export type RetryPolicy = DelaysPolicy | ExponentialPolicy;

/** Longest delay of any policy, in ms: a date beyond what a `Date` can hold would be stored as "run now". */
const MAX_DELAY_MS = 365 * 24 * 3600 * 1000;

/** Delay after the `attempts`-th answered failure, in ms. `random` is from 0 up to, not including, 1. */
export function retryDelayMs(attempts: number, policy: RetryPolicy, random: number): number {
  return Math.min(
    MAX_DELAY_MS,
    Math.round('base_ms' in policy ? doubled(attempts, policy, random) : listed(attempts, policy, random)),
  );
}

function listed(attempts: number, { delays_ms, jitter }: DelaysPolicy, random: number): number {
  const delay = delays_ms[Math.min(attempts, delays_ms.length) - 1] ?? 0;
  return delay * (1 + jitter * random);
}

function doubled(attempts: number, { base_ms, cap_ms }: ExponentialPolicy, random: number): number {
  const delay = Math.min(cap_ms, base_ms * 2 ** Math.min(attempts - 1, 60));
  return delay / 2 + (delay / 2) * random;
}

/** What is wrong with a policy a target declares, in words; nothing when it can be used. */
export function retryPolicyFault(policy: RetryPolicy): string | undefined {
  const whole = (value: unknown): boolean =>
    Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= MAX_DELAY_MS;
  if ('base_ms' in policy) {
    if (!whole(policy.base_ms) || policy.base_ms < 1) return 'base_ms: expected a whole number of ms from 1';
    if (!whole(policy.cap_ms) || policy.cap_ms < policy.base_ms)
      return 'cap_ms: expected a whole number of ms from base_ms on';
    return undefined;
  }
  const { delays_ms, jitter } = policy;
  if (!Array.isArray(delays_ms) || delays_ms.length === 0 || !delays_ms.every(whole))
    return 'delays_ms: expected a list of whole numbers of ms';
  if (!(typeof jitter === 'number' && jitter >= 0 && jitter <= 1)) return 'jitter: expected a number from 0 to 1';
  return undefined;
}
