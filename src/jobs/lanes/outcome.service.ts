/**
 * The only place that ends a run: decides per row (policy/outcome), translates (store/outcome_update), applies.
 *
 * What if we die before the write? The mark names the rows, and the next owner judges them. After it? The rows are
 * settled under the mark's token. What if its reply is lost? The same prepared outcome is written again: every part
 * of it is fenced and done at most once. What if we wake up ten minutes later? The fences match nothing, which is
 * counted (`outcome_lost`) and otherwise a normal result.
 */
import { Inject, Injectable } from '@nestjs/common';
import type { mongo, Types } from 'mongoose';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { RANDOM, type Random } from '../../common/ports/random.js';
import { errorText } from '../../common/errors.js';
import { JobsEvents, type JobsEvent } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { decideRow, type RunResult } from '../policy/outcome.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { releaseFollowers, type CellId, type KeyRef } from '../store/fast_lane.store.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { deleteFinished, writeOutcomes } from '../store/outcome.store.js';
import { failureOperation, stampOperations } from '../store/outcome_update.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import type { RunResults } from './job_runner.js';
import { POD, type Pod } from './pod.js';
import { rowRef } from './row_ref.js';

/** A decided outcome on its way into the database. Parts that are written are emptied, so it can be written again. */
export interface PreparedOutcome {
  readonly cell: CellId;
  completed: Types.ObjectId[];
  operations: mongo.AnyBulkWriteOperation<JobDoc>[];
  /** Rows the operations speak of. */
  rows: number;
  release: KeyRef[];
  events: JobsEvent[];
  /** A write was tried before: fewer matches than rows are then expected, not lost. */
  repeated: boolean;
}

@Injectable()
export class JobOutcome {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(RANDOM) private readonly random: Random,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  prepare(cell: CellId, target: RegisteredTarget, results: RunResults, token: string, ms: number): PreparedOutcome {
    const now = this.clock.now();
    const prepared: PreparedOutcome = {
      cell,
      completed: [],
      operations: [],
      rows: 0,
      release: [],
      events: [],
      repeated: false,
    };
    const rules = { ...target, retry: this.config.retry };
    const stamped: JobDoc[] = [];
    for (const [row, result] of results) {
      const decision = decideRow(row, result, rules, now, this.random());
      if (decision.do === 'complete') prepared.completed.push(row._id);
      else if (decision.do === 'stamp') stamped.push(row);
      else {
        const run = { token, pod: this.pod.id, now, ms, class: result.kind, history_size: this.config.history_size };
        prepared.operations.push(failureOperation(row, decision, run));
        prepared.rows++;
      }
      const ended = decision.do === 'dead' || (decision.do === 'complete' && row.attempts > 0);
      if (ended) prepared.release.push(row); // a head that had waited is gone: what was deferred behind it comes due
      prepared.events.push(...this.eventsOf(row, result, decision, ms));
    }
    prepared.operations.push(...stampOperations(stamped, token));
    prepared.rows += stamped.length;
    return prepared;
  }

  /** One delete for what succeeded, one bulk write for the rest. Throws when the database does; call it again then. */
  async write(prepared: PreparedOutcome): Promise<void> {
    const again = prepared.repeated;
    prepared.repeated = true;
    if (prepared.completed.length > 0) {
      const deleted = await deleteFinished(this.collections, prepared.completed);
      this.countLost(prepared.cell, again ? 0 : prepared.completed.length - deleted);
      prepared.completed = [];
    }
    if (prepared.operations.length > 0) {
      const matched = await writeOutcomes(this.collections, prepared.operations);
      this.countLost(prepared.cell, again ? 0 : prepared.rows - matched);
      prepared.operations = [];
    }
    if (prepared.release.length > 0) {
      await releaseFollowers(this.collections, prepared.release, this.clock.now());
      prepared.release = [];
    }
    for (const event of prepared.events.splice(0)) this.events.emit(event);
  }

  private countLost(cell: CellId, count: number): void {
    if (count > 0) this.events.emit({ type: 'outcome_lost', ...cell, count });
  }

  private eventsOf(
    row: JobDoc,
    result: RunResult,
    decision: { do: string; attempts?: number },
    ms: number,
  ): JobsEvent[] {
    if (result.kind === 'not_started') return [];
    const ref = rowRef(row, decision.attempts ?? row.attempts);
    const ended: JobsEvent = { type: 'run_ended', row: ref, result: result.kind, ms };
    if (decision.do !== 'dead') return [ended];
    const reason = 'error' in result ? errorText(result.error) : result.kind;
    return [ended, { type: 'dead', row: ref, reason }];
  }
}
