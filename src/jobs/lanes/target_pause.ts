/**
 * Which targets rest because nothing reached them (invariant 6). A paused target's cells are not read; after
 * `pause.probe_ms` one run, of one row, goes through and decides. Resting spends no attempt, however long it lasts.
 *
 * One row must not keep a target paused: the probe takes another row than the one that caused the pause where it can,
 * and an at-least-once row whose runs keep ending unknown while others succeed is charged like an answered failure.
 *
 * State is this pod's memory: losing it in a restart only costs one more probe.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { errorText } from '../../common/errors.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';

export type Gate = 'open' | 'closed' | 'probe';

interface Pause {
  until: number;
  /** The row whose run found the target down. */
  cause: string;
  /** Monotonic deadline of the probe under way: one that never settles must not close the gate for ever. */
  probingUntil?: number;
}

/** Rows remembered for having ended unknown; the oldest are forgotten first. */
const MAX_REMEMBERED = 1000;

@Injectable()
export class TargetPause {
  private readonly pauses = new Map<string, Pause>();
  private readonly successes = new Map<string, number>();
  /** Row id to the target's successes at the time its run ended unknown. */
  private readonly unknownEnds = new Map<string, number>();

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** May a cell of this target run now? `probe` hands out the one permit: give it back by `up`, `down` or `unused`. */
  pass(target: string): Gate {
    const gate = this.look(target);
    if (gate === 'probe') {
      const { timeout_ms } = this.config.fast_lane;
      this.pauses.get(target)!.probingUntil = this.clock.monotonic() + timeout_ms + this.config.lease.margin_ms;
    }
    return gate;
  }

  /** The same without taking the permit. */
  look(target: string): Gate {
    const pause = this.pauses.get(target);
    if (!pause) return 'open';
    const now = this.clock.monotonic();
    if (pause.probingUntil !== undefined && now < pause.probingUntil) return 'closed';
    return now >= pause.until ? 'probe' : 'closed';
  }

  causeOf(target: string): string | undefined {
    return this.pauses.get(target)?.cause;
  }

  /** Milliseconds until the next probe of any target may go, if one is paused. */
  nextProbeMs(): number | undefined {
    const waits = [...this.pauses.values()].map((pause) => Math.max(pause.until, pause.probingUntil ?? 0));
    return waits.length === 0 ? undefined : Math.max(0, Math.min(...waits) - this.clock.monotonic());
  }

  down(target: string, row: string, error: unknown): void {
    const wish = (error as { retry_after_ms?: number } | undefined)?.retry_after_ms ?? 0;
    const ms = Math.max(this.config.pause.probe_ms, wish);
    this.pauses.set(target, { until: this.clock.monotonic() + ms, cause: row });
    this.events.emit({ type: 'target_paused', target, reason: errorText(error), ms });
  }

  up(target: string): void {
    this.successes.set(target, (this.successes.get(target) ?? 0) + 1);
    if (this.pauses.delete(target)) this.events.emit({ type: 'target_resumed', target });
  }

  /** The probe found nothing to run: another cell may try. */
  unused(target: string): void {
    const pause = this.pauses.get(target);
    if (pause) delete pause.probingUntil;
  }

  /** Remembers that a run ended unknown; true when it had before and the target has served others since. */
  endedUnknownAgain(target: string, row: string): boolean {
    const successes = this.successes.get(target) ?? 0;
    const before = this.unknownEnds.get(row);
    this.unknownEnds.delete(row);
    this.unknownEnds.set(row, successes);
    if (this.unknownEnds.size > MAX_REMEMBERED) this.unknownEnds.delete(this.unknownEnds.keys().next().value!);
    return before !== undefined && successes > before;
  }

  forget(row: string): void {
    this.unknownEnds.delete(row);
  }
}
