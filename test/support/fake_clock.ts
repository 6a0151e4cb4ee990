/** A clock that moves only when told. Several pods of a test may share one. */
import type { Clock, Timer } from '../../src/common/ports/clock.js';

export class FakeClock implements Clock {
  /** How often the database was asked for its time: a command each, were it the real clock. */
  syncs = 0;
  private ms = 0;
  private timers: { at: number; ms: number; callback: () => void }[] = [];
  private watchers: { ms: number; resolve(): void }[] = [];

  constructor(private readonly start = Date.UTC(2030, 0, 1)) {}

  now(): Date {
    return new Date(this.start + this.ms);
  }

  monotonic(): number {
    return this.ms;
  }

  sync(): Promise<void> {
    this.syncs++;
    return Promise.resolve();
  }

  after(ms: number, callback: () => void): Timer {
    const timer = { at: this.ms + ms, ms, callback };
    this.timers.push(timer);
    for (const watcher of this.watchers.filter((each) => each.ms === ms)) watcher.resolve();
    return { cancel: () => void (this.timers = this.timers.filter((other) => other !== timer)) };
  }

  /** Resolves once somebody waits for exactly `ms`. */
  async armed(ms: number): Promise<void> {
    if (this.timers.some((timer) => timer.ms === ms)) return;
    await new Promise<void>((resolve) => this.watchers.push({ ms, resolve }));
  }

  /** Moves on, firing what comes due on the way, in order. */
  advance(ms: number): void {
    const until = this.ms + ms;
    for (;;) {
      const due = this.timers.filter((timer) => timer.at <= until).sort((a, b) => a.at - b.at)[0];
      if (!due) break;
      this.timers = this.timers.filter((timer) => timer !== due);
      this.ms = Math.max(this.ms, due.at);
      due.callback();
    }
    this.ms = until;
  }
}
