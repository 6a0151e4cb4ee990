/**
 * Runs one slot's row: skips it when it starts too late for its policy, else calls the schedule's handler and notes the
 * run. A skipped slot ends as a success: its row goes, the skip is recorded on the schedule. Notes are for people; one
 * that cannot be written never ends a run otherwise than it ended.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { JobsEvents } from '../jobs/jobs.events.js';
import type { Job, JobContext } from '../jobs/jobs.types.js';
import { targetOf, type DeclaredFields, type ScheduleHandler } from './schedule_declaration.js';
import { isLate, MissedSlotPolicy, skipLateSlot, type SkipReason } from './schedule_rules.js';
import { findSchedule, recordRun, recordSkip, SCHEDULES_COLLECTIONS, slotWaits } from './schedules.store.js';
import type { SchedulesCollections } from './schedules.store.js';

/** What a slot's row carries. */
export interface SlotPayload {
  slot: string;
  /** An admin asked for this run: it stands for no slot and is never late. */
  run_now?: true;
}

@Injectable()
export class SlotRunner {
  constructor(
    @Inject(SCHEDULES_COLLECTIONS) private readonly collections: SchedulesCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  async run(declared: DeclaredFields, handler: ScheduleHandler, job: Job, ctx: JobContext): Promise<void> {
    const payload = job.payload as unknown as SlotPayload;
    const slot = new Date(payload.slot);
    // A retry is late by nature, an admin's as well: only the first run of a slot is held to its time.
    const exempt = payload.run_now || ctx.attempt > 1 || job.retried_at !== undefined;
    const reason = exempt ? undefined : await this.skipReason(declared, slot);
    if (reason) return this.skip(declared.code, slot, reason);
    const at = this.clock.now();
    const started = this.clock.monotonic();
    const note = (result: 'success' | 'failure'): Promise<void> => {
      const ms = Math.round(this.clock.monotonic() - started);
      const run = { at, ms, result, slot: payload.run_now ? undefined : slot };
      return this.noted(declared.code, recordRun(this.collections, declared.code, run));
    };
    try {
      await handler({ slot, job, ctx });
    } catch (error) {
      await note('failure');
      throw error;
    }
    await note('success');
  }

  private async skipReason(
    { code, missed_slot_policy: policy }: DeclaredFields,
    slot: Date,
  ): Promise<SkipReason | undefined> {
    const now = this.clock.now();
    if (!isLate(slot, now)) return undefined;
    const newerWaits = policy === MissedSlotPolicy.runOnce && (await slotWaits(this.collections, targetOf(code), slot));
    const row = await findSchedule(this.collections, code);
    return skipLateSlot({ slot, now, policy, newerWaits, lastRun: row?.last_run });
  }

  private async skip(code: string, slot: Date, reason: SkipReason): Promise<void> {
    await this.noted(code, recordSkip(this.collections, code, slot, reason));
    this.events.emit({ type: 'slot_skipped', code, slot, at: 'run', reason });
  }

  private async noted(code: string, write: Promise<void>): Promise<void> {
    try {
      await write;
    } catch (error) {
      this.events.emit({ type: 'loop_failed', loop: `notes of schedule ${code}`, error });
    }
  }
}
