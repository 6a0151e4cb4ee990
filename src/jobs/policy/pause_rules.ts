/**
 * When a resting target may be probed, and how its rows come back afterwards. Pure: times are milliseconds the caller
 * passes in.
 */

export type Gate = 'open' | 'closed' | 'probe';

export interface Rest {
  /** No probe before this; infinite where an admin paused. */
  readonly probe_at: number;
  /** Somebody holds the permit for the probe until then; 0: nobody. */
  readonly probe_until: number;
}

/** May a run of the target start? `probe`: one may, whoever gets the permit. */
export function gateOf(rest: Rest | undefined, now: number): Gate {
  if (!rest) return 'open';
  return now >= nextProbeAt(rest) ? 'probe' : 'closed';
}

export function nextProbeAt({ probe_at, probe_until }: Rest): number {
  return Math.max(probe_at, probe_until);
}

/** A target may ask for a longer rest, but one wrong header must not silence it for days. */
const MAX_RETRY_AFTER_MS = 3_600_000;

/** Rest of a target that was found down, in ms. `retry_after_ms` comes from foreign code: anything may be in it. */
export function restMs(probe_ms: number, retry_after_ms: unknown): number {
  const wish = typeof retry_after_ms === 'number' && retry_after_ms > 0 ? retry_after_ms : 0;
  return Math.max(probe_ms, Math.min(Math.ceil(wish), MAX_RETRY_AFTER_MS));
}

/**
 * How long one permit lasts, in ms: at least the interval (one probe per interval), and as long as a short send may
 * take. Longer runs go on under it: the next probe then starts beside them, and whichever ends first decides.
 */
export function permitMs({ probe_ms, send_ms }: { probe_ms: number; send_ms: number }): number {
  return Math.max(probe_ms, send_ms);
}

/** How many rows of a target that came back may run at once: it must not meet its whole backlog at the first answer. */
export interface Ramp {
  readonly places: number;
  /** Answers since the last step. */
  readonly answers: number;
  /** Time of the last step. */
  readonly since: number;
}

export function startRamp(now: number): Ramp {
  return { places: 1, answers: 0, since: now };
}

/** Every place has answered once: twice as many. */
export function rampAfterAnswer(ramp: Ramp, now: number): Ramp {
  const answers = ramp.answers + 1;
  return answers < ramp.places ? { ...ramp, answers } : { places: ramp.places * 2, answers: 0, since: now };
}

/** Runs may take long, or there may be none for a while: a period without a new pause doubles the places as well. */
export function rampAfterTime(ramp: Ramp, now: number, period_ms: number): Ramp {
  const periods = Math.floor((now - ramp.since) / period_ms);
  if (periods < 1) return ramp;
  return { places: ramp.places * 2 ** Math.min(periods, 30), answers: 0, since: ramp.since + periods * period_ms };
}

/** Rows of one batch, so that all cells of the target together stay within its places. */
export function rowsAtOnce(places: number, target: { concurrency: number; max_in_flight: number }): number {
  return Math.min(target.max_in_flight, Math.max(1, Math.floor(places / target.concurrency)));
}
