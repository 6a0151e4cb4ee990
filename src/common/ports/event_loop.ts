/** How long this process did not get to its work: a handler that computes, a stopped process, a long garbage collection. */
import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';

const RESOLUTION_MS = 20;

export class EventLoopWatch {
  private histogram: IntervalHistogram | undefined;
  private before = 0;

  start(): void {
    this.histogram ??= monitorEventLoopDelay({ resolution: RESOLUTION_MS });
    this.histogram.enable();
  }

  stop(): void {
    this.histogram?.disable();
    this.histogram = undefined;
  }

  /** The longest block since the last but one call of `turn`, in ms: a look right after it still sees what was. */
  longestMs(): number {
    return Math.max(this.before, this.current());
  }

  /** Begins a new window. */
  turn(): void {
    this.before = this.current();
    this.histogram?.reset();
  }

  private current(): number {
    // The histogram counts its own interval as well, and starts with a nonsense maximum of 0.
    return this.histogram ? Math.max(0, this.histogram.max / 1e6 - RESOLUTION_MS) : 0;
  }
}
