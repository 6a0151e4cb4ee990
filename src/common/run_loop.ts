/**
 * One background loop: runs a step, waits as long as the step asked, runs it again. A hint (`wake`) cuts the wait
 * short. It survives every error of its step, because a loop that died of one failed query would strand its rows.
 */
import type { Clock, Timer } from './ports/clock.js';

/** Runs once and answers after how many milliseconds to run again. */
export type LoopStep = () => Promise<number>;

export interface RunLoopOptions {
  name: string;
  clock: Clock;
  step: LoopStep;
  /** Wait after a failed step, in ms. */
  errorDelayMs: number;
  onError(loop: string, error: unknown): void;
}

/** From one `start` to the `stop` that ends it. */
interface Term {
  stopping: boolean;
}

export class RunLoop {
  private term: Term | undefined;
  /** Settles when no round runs any more; terms follow one another, so two rounds never run side by side. */
  private running: Promise<void> | undefined;
  private timer: Timer | undefined;
  private resume: (() => void) | undefined;
  private hinted = false;
  /** Monotonic time at which the last round ended; undefined before the first. */
  lastRoundAt: number | undefined;
  /** Monotonic time at which the next good round is due; a round that failed puts nothing off. */
  private dueAt = 0;

  constructor(private readonly options: RunLoopOptions) {}

  get name(): string {
    return this.options.name;
  }

  get started(): boolean {
    return this.term !== undefined && !this.term.stopping;
  }

  /** For how many ms a round that does not fail is overdue: 0 while it keeps its pace, and while it is stopped. */
  lateMs(): number {
    return this.started ? Math.max(0, this.options.clock.monotonic() - this.dueAt) : 0;
  }

  /** Does nothing when it runs. During an unfinished `stop` it runs on after the round that is being waited for. */
  start(): void {
    if (this.term && !this.term.stopping) return;
    const term: Term = { stopping: false };
    this.term = term;
    this.dueAt = this.options.clock.monotonic();
    const before = this.running;
    const run = (before ? before.then(() => this.loop(term)) : this.loop(term)).finally(() => {
      if (this.running === run) this.running = undefined;
    });
    this.running = run;
  }

  /** Runs the next round now. A hint that comes while a round runs makes the next one follow at once. */
  wake(): void {
    this.hinted = true;
    this.resume?.();
  }

  /** Resolves when the round under way has ended; no other starts unless `start` is called. Safe to call at any time. */
  async stop(): Promise<void> {
    if (this.term) this.term.stopping = true;
    this.resume?.();
    await this.running;
  }

  private async loop(term: Term): Promise<void> {
    while (!term.stopping) {
      this.hinted = false;
      const delay = await this.round();
      if (!term.stopping && !this.hinted) await this.wait(delay);
    }
  }

  private async round(): Promise<number> {
    try {
      const delay = await this.options.step();
      this.dueAt = this.options.clock.monotonic() + delay;
      return delay;
    } catch (error) {
      this.report(error);
      return this.options.errorDelayMs;
    } finally {
      this.lastRoundAt = this.options.clock.monotonic();
    }
  }

  private report(error: unknown): void {
    try {
      this.options.onError(this.options.name, error);
    } catch {
      // whoever listens must not end the loop
    }
  }

  private wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.resume = () => {
        this.timer?.cancel();
        this.resume = undefined;
        resolve();
      };
      this.timer = this.options.clock.after(ms, this.resume);
    });
  }
}
