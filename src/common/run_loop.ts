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

export class RunLoop {
  private stopping = true;
  private running: Promise<void> | undefined;
  private timer: Timer | undefined;
  private resume: (() => void) | undefined;
  private hinted = false;
  /** Monotonic time at which the last round ended; undefined before the first. */
  lastRoundAt: number | undefined;

  constructor(private readonly options: RunLoopOptions) {}

  start(): void {
    if (this.running) return;
    this.stopping = false;
    this.running = this.loop();
  }

  /** Runs the next round now. A hint that comes while a round runs makes the next one follow at once. */
  wake(): void {
    this.hinted = true;
    this.resume?.();
  }

  /** Resolves when the round under way has ended; no other starts. Safe to call twice, and before `start`. */
  async stop(): Promise<void> {
    this.stopping = true;
    this.resume?.();
    await this.running;
    this.running = undefined;
  }

  private async loop(): Promise<void> {
    while (!this.stopping) {
      this.hinted = false;
      const delay = await this.round();
      if (!this.stopping && !this.hinted) await this.wait(delay);
    }
  }

  private async round(): Promise<number> {
    try {
      return await this.options.step();
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
