/**
 * Time as the engine sees it. Due times, leases and slots follow the DATABASE's clock (invariant 13): `now()` is an
 * offset measured from `hello.localTime` plus a monotonic clock, so that a pod whose wall clock is hours off changes
 * nothing. `monotonic()` alone decides when to stop trusting a lease.
 *
 * Nothing outside this folder may call `Date.now()`, `new Date()` or `performance.now()` (architecture test).
 */
export interface Clock {
  /** The database's time. */
  now(): Date;
  /** Milliseconds that only ever grow, unrelated to any calendar. */
  monotonic(): number;
  /** Measures the offset to the database anew; one `hello`, three at most where the answer is slow. */
  sync(): Promise<void>;
  /** Calls back once, `ms` milliseconds from now. */
  after(ms: number, callback: () => void): Timer;
}

export interface Timer {
  cancel(): void;
}

export const CLOCK = Symbol('sidelane.clock');

/** A measurement may be off by half its round trip. */
const MAX_ROUND_TRIP_MS = 2_000;
const TRIES = 3;

/** No answer came quickly enough to tell the time by: a database, or a pod, that stalls. What was known stays. */
export class DatabaseTooSlow extends Error {
  constructor(quickest: number, most: number) {
    super(
      `the database's time: ${Math.round(quickest)} ms for the quickest of ${TRIES} answers, at most ${most} allowed`,
    );
    this.name = 'DatabaseTooSlow';
  }
}

/** Asks the database for its time. */
export type AskDatabaseTime = () => Promise<Date>;

export class DatabaseClock implements Clock {
  /** Database time minus monotonic time, in ms; unknown until the first answer. */
  private offset: number | undefined;

  constructor(
    private readonly ask: AskDatabaseTime,
    private readonly source: { wall(): number; monotonic(): number } = systemTime,
    /** Longer round trips tell nothing, in ms. */
    private readonly maxRoundTripMs = MAX_ROUND_TRIP_MS,
  ) {}

  now(): Date {
    // Before the first answer the wall clock has to do: rows enqueued while the application boots.
    if (this.offset === undefined) return new Date(this.source.wall());
    return new Date(Math.round(this.offset + this.source.monotonic()));
  }

  monotonic(): number {
    return this.source.monotonic();
  }

  /**
   * Leases are written by this clock and trusted by the monotonic one: a pod that stalls before it reads the answer would
   * be behind by half of the stall, and trust leases that are over. So a slow answer is asked for again.
   * Throws `DatabaseTooSlow`.
   */
  async sync(): Promise<void> {
    let quickest = Infinity;
    for (let tries = 0; tries < TRIES; tries++) {
      const before = this.source.monotonic();
      const databaseTime = await this.ask();
      const after = this.source.monotonic();
      quickest = Math.min(quickest, after - before);
      if (after - before > this.maxRoundTripMs) continue;
      // The answer was made somewhere between the two readings: the middle is off by half the round trip at most.
      this.offset = databaseTime.getTime() - (before + after) / 2;
      return;
    }
    throw new DatabaseTooSlow(quickest, this.maxRoundTripMs);
  }

  after(ms: number, callback: () => void): Timer {
    let handle: NodeJS.Timeout;
    const arm = (left: number): void => {
      const step = Math.min(left, MAX_TIMER_MS);
      handle = setTimeout(() => (left > step ? arm(left - step) : callback()), step);
      handle.unref();
    };
    arm(ms);
    return { cancel: () => clearTimeout(handle) };
  }
}

/** Node's timers overflow beyond this and would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

const systemTime = { wall: () => Date.now(), monotonic: () => performance.now() };
