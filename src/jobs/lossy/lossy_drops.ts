/**
 * Counts every lossy job that was dropped, at once, and sums the counts up for the log at most once a second: a Redis
 * that is away must not fill the log as well.
 */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import { CLOCK, type Clock, type Timer } from '../../common/ports/clock.js';
import { JobsEvents, type LossyDropReason } from '../jobs.events.js';

const SUM_MS = 1_000;

@Injectable()
export class LossyDrops implements OnApplicationShutdown {
  private readonly counts = new Map<string, { target: string; reason: LossyDropReason; count: number }>();
  private resting: Timer | undefined;

  constructor(
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  add(target: string, reason: LossyDropReason, count = 1): void {
    this.events.emit({ type: 'lossy_dropped', target, count, reason });
    const known = this.counts.get(`${reason} ${target}`);
    if (known) known.count += count;
    else this.counts.set(`${reason} ${target}`, { target, reason, count });
    if (!this.resting) this.sum();
  }

  onApplicationShutdown(): void {
    this.resting?.cancel();
    this.sum();
  }

  private sum(): void {
    this.resting = undefined;
    if (this.counts.size === 0) return;
    const drops = [...this.counts.values()];
    this.counts.clear();
    this.resting = this.clock.after(SUM_MS, () => this.sum());
    this.events.emit({ type: 'lossy_drops_summed', drops });
  }
}
