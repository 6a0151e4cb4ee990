/** When a row that was answered with a failure runs again. Pure. */

export interface RetryPolicy {
  readonly delays_ms: readonly number[];
  /** Share of the delay added at random: never earlier than promised, and not all together. */
  readonly jitter: number;
}

/** Delay after the `attempts`-th answered failure, in ms; the last one repeats for targets with more attempts. */
export function retryDelayMs(attempts: number, policy: RetryPolicy, random: number): number {
  const delay = policy.delays_ms[Math.min(attempts, policy.delays_ms.length) - 1] ?? 0;
  return Math.round(delay * (1 + policy.jitter * random));
}
