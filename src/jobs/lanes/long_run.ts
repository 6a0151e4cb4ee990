/** Runs one claimed row to its end: handler, what its result says of the target, outcome. */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { DeliveryMode } from '../jobs.types.js';
import { targetVerdict, type RunResult } from '../policy/outcome.js';
import { JobRunner } from './job_runner.js';
import { OutcomeBatch } from './outcome_batch.js';
import { JobOutcome, type PreparedOutcome } from './outcome.service.js';
import type { RunningRow } from './running_row.js';
import { TargetPause } from './target_pause.js';

@Injectable()
export class LongRun {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobRunner) private readonly runner: JobRunner,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(OutcomeBatch) private readonly outcomes: OutcomeBatch,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** Resolves once the outcome is written; `onEnded` is called when the handler has come back. Never rejects. */
  async run(running: RunningRow, { mayStart, onEnded }: { mayStart: boolean; onEnded(): void }): Promise<void> {
    const { row, target } = running;
    const started = this.clock.monotonic();
    let result: RunResult = { kind: 'not_started' };
    if (mayStart && this.isTrusted(running) && !running.refusal) {
      result = await this.runner.runLong(target, row, {
        abort: running.abort,
        progress: (percent, note) => running.progress(percent, note),
      });
    }
    try {
      result = this.tellPause(running, result);
    } catch (error) {
      // Without its outcome the row would be renewed for ever, or end this process and the next one that claims it.
      this.events.emit({ type: 'loop_failed', loop: 'long_lane', error });
    }
    result = running.refusal ?? result; // a row that never started says nothing of its target
    running.ended = true;
    onEnded();
    await this.outcomes.submit(this.prepare(running, result, this.clock.monotonic() - started));
  }

  /**
   * Once more before the start: time may have gone by since the claim was asked for. A claim that could run out before its
   * first renewal would let the next owner's run begin beside this one.
   */
  private isTrusted({ deadline, startBy }: RunningRow): boolean {
    const { lease, long_lane } = this.config;
    const now = this.clock.monotonic();
    return deadline - lease.margin_ms - long_lane.renew_ms > now && startBy >= now;
  }

  /** A shutdown's last act for handlers that do not give up: rows that may run twice are due again, at no charge. */
  async giveBack(rows: readonly RunningRow[]): Promise<void> {
    const again = rows.filter(({ ended, target }) => !ended && target.delivery_mode === DeliveryMode.atLeastOnce);
    // At most once must not: nobody knows how far the handler got, so its lease runs out and it goes DEAD.
    await Promise.all(again.map((row) => this.outcomes.submit(this.prepare(row, { kind: 'not_started' }, 0))));
  }

  /** The connections are about to close: outcomes that cannot be written are left to the leases. */
  giveUp(): void {
    this.outcomes.giveUp();
  }

  private prepare({ row, target, calledOff }: RunningRow, result: RunResult, ms: number): PreparedOutcome {
    const scope = { target: target.name };
    const succeeded = result.kind === 'success' || result.kind === 'completed';
    if (calledOff === 'cancelled' && !succeeded) {
      const started = result.kind !== 'not_started' && result.kind !== 'postponed';
      return this.outcome.prepareRemoval(scope, row, started ? ms : undefined);
    }
    return this.outcome.prepare(scope, target, new Map([[row, result]]), { ms });
  }

  /** What the result says about the target; and a row that keeps ending unknown while others succeed is charged. */
  private tellPause({ row, target, passed }: RunningRow, result: RunResult): RunResult {
    const atLeastOnce = target.delivery_mode === DeliveryMode.atLeastOnce;
    const charged: RunResult =
      result.kind === 'unknown' && atLeastOnce && this.pause.endedUnknownAgain(target.name, row._id.toHexString())
        ? { kind: 'answered', error: result.error }
        : result;
    const verdict = targetVerdict(charged, target.delivery_mode);
    if (verdict === 'up') this.pause.up(target.name, passed);
    if (verdict === 'down') {
      this.pause.down(target.name, row._id.toHexString(), 'error' in charged ? charged.error : undefined, passed);
    }
    if (verdict === 'silent' && passed !== 'open') this.pause.unused(target.name, passed);
    if (charged.kind === 'success') this.pause.forget(row);
    return charged;
  }
}
