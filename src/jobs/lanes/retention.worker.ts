/**
 * Deletes expired rows where the server's TTL monitor is slow or absent, and is harmless beside it. In small slices, so
 * that no command holds up the lanes; one pass a minute and pod, at a time of the pod's own; stops between two slices.
 * Never touches a row without `expire_at`: while retention is off, nothing expires. Idle: one query a minute.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { RANDOM, type Random } from '../../common/ports/random.js';
import { RunLoop } from '../../common/run_loop.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { deleteExpired, findExpired } from '../store/retention.store.js';

/** Rows of one delete. */
export const RETENTION_SLICE = 500;
const PASS_MS = 60_000;

@Injectable()
export class RetentionWorker {
  readonly loop: RunLoop;
  private stopping = false;
  private begun = false;

  constructor(
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(RANDOM) private readonly random: Random,
    @Inject(JobsEvents) events: JobsEvents,
  ) {
    this.loop = new RunLoop({
      name: 'retention',
      clock,
      step: () => this.step(),
      errorDelayMs: PASS_MS,
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
  }

  start(): void {
    this.loop.start();
  }

  /** Resolves when the slice under way is done; no other starts. */
  async stop(): Promise<void> {
    this.stopping = true;
    await this.loop.stop();
  }

  /** One pass: slice after slice until nothing is expired. Answers how many rows it deleted. */
  async runOnce(): Promise<number> {
    let deleted = 0;
    while (!this.stopping) {
      const now = this.clock.now();
      const ids = await findExpired(this.collections, now, RETENTION_SLICE);
      if (ids.length > 0) deleted += await deleteExpired(this.collections, ids, now);
      if (ids.length < RETENTION_SLICE) break;
    }
    return deleted;
  }

  /** Pods that boot together do not look together. */
  private async step(): Promise<number> {
    if (!this.begun) {
      this.begun = true;
      return this.random() * PASS_MS;
    }
    await this.runOnce();
    return PASS_MS;
  }
}
