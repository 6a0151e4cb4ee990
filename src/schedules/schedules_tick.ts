/**
 * Turns due slots into rows, on every pod: whoever moves `next_run_at` first inserts the slot's row in the same
 * transaction, so any number of pods, stalls and crashes make one row per slot (invariant 8). A dedupe key alone would
 * protect a slot only while its row exists. One query a round; one schedule that cannot be read stops no other.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { crashPoint } from '../common/ports/crash_points.js';
import { RunLoop } from '../common/run_loop.js';
import { JobsEvents } from '../jobs/jobs.events.js';
import { SideEffectService } from '../jobs/side_effect.service.js';
import { slotsOf } from './effective_slots.js';
import { targetOf } from './schedule_declaration.js';
import { planTick, TICK_MS, tickDelayMs, withoutSlot, type TickPlan } from './schedule_rules.js';
import type { ScheduleDoc } from './schedules.schema.js';
import { SchedulesService } from './schedules.service.js';
import { advance, isPaused, SCHEDULES_COLLECTIONS, schedulesUpTo, slotWaits } from './schedules.store.js';
import type { SchedulesCollections } from './schedules.store.js';
import type { SlotPayload } from './slot_runner.js';

const ERROR_DELAY_MS = 1_000;

@Injectable()
export class SchedulesTick {
  readonly loop: RunLoop;
  /** What was said about a schedule that cannot be read; it is due at every tick, and need not be said at each. */
  private readonly complaints = new Map<string, string>();

  constructor(
    @Inject(SCHEDULES_COLLECTIONS) private readonly collections: SchedulesCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(SchedulesService) private readonly schedules: SchedulesService,
    @Inject(SideEffectService) private readonly sideEffect: SideEffectService,
  ) {
    this.loop = new RunLoop({
      name: 'schedules',
      clock,
      step: () => this.tickOnce(),
      errorDelayMs: ERROR_DELAY_MS,
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
  }

  start(): void {
    this.loop.start();
  }

  stop(): Promise<void> {
    return this.loop.stop();
  }

  /** An admin changed a schedule: its next slot may be sooner than the tick thinks. */
  wake(): void {
    this.loop.wake();
  }

  /** Monotonic time at which the last round ended, for health checks. */
  get lastRoundAt(): number | undefined {
    return this.loop.lastRoundAt;
  }

  /** One round; answers in how many ms the next is due: at the next known slot, 15 s at most. */
  async tickOnce(): Promise<number> {
    const codes = this.schedules.codes();
    if (codes.length === 0) return TICK_MS;
    const until = new Date(this.clock.now().getTime() + TICK_MS);
    const upcoming: Date[] = [];
    const errors: unknown[] = [];
    for (const row of await schedulesUpTo(this.collections, codes, until)) {
      if (row.next_run_at! > this.clock.now()) {
        upcoming.push(row.next_run_at!);
        continue;
      }
      try {
        const next = await this.tickSchedule(row);
        if (next) upcoming.push(next);
      } catch (error) {
        errors.push(error); // the others first
      }
    }
    if (errors.length > 0) throw errors[0];
    return tickDelayMs(this.clock.now(), upcoming);
  }

  /** Decides about the due slots of one schedule as it was read; answers its next slot. */
  async tickSchedule(row: ScheduleDoc): Promise<Date | undefined> {
    const now = this.clock.now();
    const plan = this.plan(row, now);
    if (!plan) return undefined;
    const final = plan.enqueue && (await this.pilesUp(row.code)) ? withoutSlot(plan) : plan;
    crashPoint('before_slot');
    const won = await this.collections.inTransaction(async (tx) => {
      if (!(await advance(this.collections, row, { ...final, now }, tx.session))) return false;
      if (final.enqueue) await this.enqueue(row.code, final.newest, tx);
      return true;
    });
    crashPoint('after_slot');
    if (won) this.announce(row.code, final);
    return final.next;
  }

  private plan(row: ScheduleDoc, now: Date): TickPlan | undefined {
    try {
      const plan = planTick({ stored: row.next_run_at!, now, policy: row.missed_slot_policy, slots: slotsOf(row) });
      this.complaints.delete(row.code);
      return plan;
    } catch (error) {
      const text = `${row.cron_override ?? row.cron} ${row.timezone}`;
      if (this.complaints.get(row.code) !== text) this.events.emit({ type: 'schedule_broken', code: row.code, error });
      this.complaints.set(row.code, text);
      return undefined;
    }
  }

  /** A paused target needs one slot to begin with when it is back, not one for every minute it was away. */
  private async pilesUp(code: string): Promise<boolean> {
    const target = targetOf(code);
    return (await isPaused(this.collections, target)) && slotWaits(this.collections, target);
  }

  private async enqueue(code: string, slot: Date, tx: Parameters<SideEffectService['enqueue']>[3]): Promise<void> {
    const payload: SlotPayload = { slot: slot.toISOString() };
    await this.sideEffect.enqueue(targetOf(code), payload, { code, dedupe_key: `${code}:${payload.slot}` }, tx);
  }

  private announce(code: string, { enqueue, newest, skipped }: TickPlan): void {
    if (skipped) {
      const { first, last: slot, reason } = skipped;
      this.events.emit({ type: 'slot_skipped', code, slot, at: 'tick', reason, ...(first < slot && { first }) });
    }
    if (enqueue) this.events.emit({ type: 'slot_enqueued', code, slot: newest });
  }
}
