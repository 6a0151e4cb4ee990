/**
 * Finds rows whose lease ran out while they were RUNNING (their pod died, or stalled) and makes them due again, or DEAD.
 *
 * Who else may write such a row? Its old pod, waking up: a renewal that comes first extends the lease, and the sweep's
 * fence (same claim, still expired) matches nothing; one that comes after matches nothing itself. Other sweepers: the
 * first one changes the claim. Row by row, so that one row which cannot be written does not wedge the others.
 * Rows of targets this pod does not know are left alone: it cannot tell what they allow.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { comesOfDatabaseAway } from '../../common/utils/database_away.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import { judgeExpired } from '../policy/reclaim.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { findExpired, removeCancelled } from '../store/long_lane.store.js';
import { reclaimOperation } from '../store/outcome_update.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { ClaimKeeper } from './claim_keeper.js';
import { JobOutcome } from './outcome.service.js';
import { rowRef } from './row_ref.js';

/** Expired rows of one sweep; a sweep that finds as many runs again at once. */
const SWEEP_LIMIT = 100;

@Injectable()
export class ClaimSweeper {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(ClaimKeeper) private readonly keeper: ClaimKeeper,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** One sweep, one query when nothing expired. Answers how many rows it changed. */
  async sweep(): Promise<number> {
    const names = this.targets.inLane(JobLane.long).map((target) => target.name);
    if (names.length === 0) return 0;
    const now = this.clock.now();
    const found = await findExpired(this.collections, names, now, SWEEP_LIMIT);
    // Ours, late with their renewal: the keeper's next look renews or loses them.
    const expired = found.filter((row) => !this.keeper.has(row._id.toHexString()));
    const cancelled = await this.removeCancelled(
      expired.filter((row) => row.cancel_requested),
      now,
    );
    const { again, dead } = await this.reclaim(
      expired.filter((row) => !row.cancel_requested),
      now,
    );
    if (again + dead + cancelled > 0) this.events.emit({ type: 'reclaimed', again, dead, cancelled });
    return again + dead + cancelled;
  }

  private async removeCancelled(rows: readonly JobDoc[], now: Date): Promise<number> {
    let removed = 0;
    await this.each(rows, async (row) => {
      if (!(await removeCancelled(this.collections, row, now))) return;
      removed++;
      this.events.emit({ type: 'cancelled', row: rowRef(row, row.attempts) });
    });
    return removed;
  }

  private async reclaim(rows: readonly JobDoc[], now: Date): Promise<{ again: number; dead: number }> {
    const counts = { again: 0, dead: 0 };
    await this.each(rows, async (row) => {
      const target = this.targets.get(row.target)!;
      const verdict = judgeExpired(target.delivery_mode, row.crashes, this.config.max_crashes);
      const run = this.outcome.runRecord(target, { token: '', now, ms: 0, class: 'lease_expired' });
      const dead = verdict.do === 'dead';
      const operation = reclaimOperation(row, verdict, run);
      if ((await this.outcome.writeJudged([{ row, target, dead, operation }])) === 0) return; // somebody was first
      counts[dead ? 'dead' : 'again']++;
      if (dead) this.events.emit({ type: 'dead', row: rowRef(row, row.attempts), reason: verdict.reason });
    });
    return counts;
  }

  /** One row that cannot be written must not hide those behind it; a database that is away would fail all of them. */
  private async each(rows: readonly JobDoc[], work: (row: JobDoc) => Promise<void>): Promise<void> {
    for (const row of rows) {
      try {
        await work(row);
      } catch (error) {
        if (comesOfDatabaseAway(error)) throw error;
        this.events.emit({ type: 'loop_failed', loop: 'sweep', error });
      }
    }
  }
}
