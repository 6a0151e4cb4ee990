/**
 * Judges what a dead or stalled owner left in flight, before anything of the partition runs again (invariant 3).
 *
 * Who else may write these rows? The old owner, waking up late: its writes are fenced by `outcome_token` as it read
 * it, which the judgement changes. Another judge, if we stall: same fence. If we die before the rows are judged, the
 * marks are still there; after it and before they are pulled, the next judge finds every row settled under the mark's
 * own token. So judging is idempotent.
 *
 * Marks of targets that this pod does not know stay where they are: it would judge without their `on_dead`, and starts
 * none of their rows. The first owner that knows them judges them.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { crashPoint } from '../../common/ports/crash_points.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { judgeTakeover } from '../policy/takeover.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { findUnsettled, releaseFollowers } from '../store/fast_lane.store.js';
import type { InflightMark, JobDoc } from '../store/jobs.schema.js';
import { takeoverOperation } from '../store/outcome_update.js';
import { pullMarks } from '../store/partition_lease.store.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';
import type { OwnedPartition } from './owned_partition.js';
import { JobOutcome } from './outcome.service.js';
import { rowRef } from './row_ref.js';

@Injectable()
export class TakeoverJudge {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** `lost`: another pod took the partition meanwhile, and judges what is left. */
  async judge(owned: OwnedPartition): Promise<'judged' | 'lost'> {
    const judged: string[] = [];
    const foreign: string[] = [];
    for (const mark of owned.unjudged) {
      const target = this.targets.get(mark.target);
      (target ? judged : foreign).push(mark.token);
      if (!target) continue;
      const rows = await findUnsettled(this.collections, mark.ids, mark.token);
      if (rows.length > 0) await this.judgeRows(owned, { mark, target }, rows);
    }
    if (judged.length > 0 && (await pullMarks(this.collections, owned.term, judged)) === 'lost') return 'lost';
    owned.foreign = foreign;
    owned.unjudged = [];
    return 'judged';
  }

  private async judgeRows(
    owned: OwnedPartition,
    { mark, target }: { mark: InflightMark; target: RegisteredTarget },
    rows: JobDoc[],
  ): Promise<void> {
    const now = this.clock.now();
    const run = this.outcome.runRecord(target, { token: mark.token, now, ms: 0, class: 'taken_over' });
    const judged = rows.map((row) => {
      const verdict = judgeTakeover(mark.mode, row.crashes, this.config.max_crashes);
      return { row, verdict, target, dead: verdict.do === 'dead', operation: takeoverOperation(row, verdict, run) };
    });
    crashPoint('before_judge');
    await this.outcome.writeJudged(judged);
    crashPoint('after_judge');
    const dead = judged.filter((each) => each.dead).map(({ row }) => row);
    if (dead.length > 0) await releaseFollowers(this.collections, dead, now);
    for (const { row, verdict } of judged) {
      if (verdict.do === 'dead')
        this.events.emit({ type: 'dead', row: rowRef(row, row.attempts), reason: verdict.reason });
    }
    const counts = { dead: dead.length, counted: judged.length - dead.length };
    this.events.emit({ type: 'taken_over', partition: owned.partition, target: mark.target, ...counts });
  }
}
