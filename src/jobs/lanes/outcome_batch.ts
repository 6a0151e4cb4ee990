/**
 * The outcomes of the long lane, gathered: a busy lane writes once per batch instead of once per row.
 *
 * An outcome that cannot be written (database gone) is kept and tried again until it is; its row keeps its claim renewed
 * meanwhile, because the caller waits for `submit`.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { GroupCommit } from '../../common/utils/group_commit.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { emptyOutcome, JobOutcome, type PreparedOutcome } from './outcome.service.js';

/** How long one row with a hook holds up the next. */
const HOOK_PATIENCE_MS = 1_000;

@Injectable()
export class OutcomeBatch {
  private readonly group: GroupCommit<PreparedOutcome, void>;
  /** Rows whose `on_dead` is called: foreign code, so one that hangs must not hold up every other outcome of the pod. */
  private readonly dying: GroupCommit<PreparedOutcome, void>;
  private readonly waits = new Set<() => void>();
  private givenUp = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {
    const write = async (batch: readonly PreparedOutcome[]): Promise<undefined[]> => {
      await this.writeUntilDone(merge(batch));
      return batch.map(() => undefined);
    };
    this.group = new GroupCommit({ write });
    this.dying = new GroupCommit({ write, most: 1, patience: { clock, ms: HOOK_PATIENCE_MS } });
  }

  /** Resolves once the outcome is written. Never rejects. */
  submit(prepared: PreparedOutcome): Promise<void> {
    return (prepared.dead.length > 0 ? this.dying : this.group).submit(prepared);
  }

  /** Tries kept outcomes at once instead of after the wait. */
  hurry(): void {
    for (const cut of this.waits) cut();
  }

  /**
   * The pod ends: an outcome whose write fails now is tried no more. Its row is reclaimed once its lease ran out, as after
   * a crash.
   */
  giveUp(): void {
    this.givenUp = true;
    this.hurry();
  }

  private async writeUntilDone(merged: PreparedOutcome): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        return await this.outcome.write(merged);
      } catch (error) {
        if (tries === 0) this.events.emit({ type: 'outcome_kept', target: merged.scope.target, error });
        if (this.givenUp) return;
        await this.wait(this.config.long_lane.error_poll_ms);
      }
    }
  }

  private wait(ms: number): Promise<void> {
    return new Promise<void>((resolve) => {
      const cut = (): void => {
        timer.cancel();
        this.waits.delete(cut);
        resolve();
      };
      const timer = this.clock.after(ms, cut);
      this.waits.add(cut);
    });
  }
}

function merge(all: readonly PreparedOutcome[]): PreparedOutcome {
  const merged = emptyOutcome({ target: [...new Set(all.map(({ scope }) => scope.target))].join(' ') });
  for (const each of all) {
    merged.completed.push(...each.completed);
    merged.operations.push(...each.operations);
    merged.rows.push(...each.rows);
    merged.deaths.push(...each.deaths);
    merged.dead.push(...each.dead);
    merged.release.push(...each.release);
    merged.events.push(...each.events);
  }
  return merged;
}
