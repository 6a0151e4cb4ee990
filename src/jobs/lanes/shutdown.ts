/**
 * How long each part of a shutdown may take once the grace is over, so that all of it fits into
 * `shutdown_grace_ms` + 4 s, whatever hangs: 1 s for handlers to give up, 1 s to give back what they ran, 0.5 s each for
 * the last renewal under way and for giving back the partitions, 0.5 s for a tick of the schedules; the rest is for the
 * connections.
 */
export const SHUTDOWN_MARGIN_MS = 4_000;

/** For handlers that were told to give up; and again for writing what becomes of their rows. */
export const GIVE_UP_MS = 1_000;

/** For each of the last commands: a database that hangs must not hold the exit, the leases run out by themselves. */
export const LAST_WORD_MS = 500;
