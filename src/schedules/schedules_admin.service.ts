/**
 * What admins see of schedules and change about them. Every change is fenced by what it was computed from and writes its
 * audit row in its own transaction; no change, no row. Works on any row of the database, declared by this pod or not,
 * but runs only what this pod can run.
 */
import { Inject, Injectable } from '@nestjs/common';
import { errorText } from '../common/errors.js';
import { adminError, notFound } from '../common/http/admin_error.js';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { ID_SOURCE, type IdSource } from '../common/ports/ids.js';
import type { Tx } from '../common/utils/transaction.js';
import { AdminAudit } from '../jobs/admin_audit.service.js';
import { SideEffectService } from '../jobs/side_effect.service.js';
import { nextSlot, slotsOf } from './effective_slots.js';
import { targetOf } from './schedule_declaration.js';
import type { ScheduleDoc } from './schedules.schema.js';
import { SchedulesService } from './schedules.service.js';
import { allSchedules, changeSchedule, findSchedule, SCHEDULES_COLLECTIONS } from './schedules.store.js';
import type { ScheduleChange, SchedulesCollections } from './schedules.store.js';
import { SchedulesTick } from './schedules_tick.js';
import type { SlotPayload } from './slot_runner.js';

export type ScheduleView = ScheduleDoc & {
  /** No code of this pod declares it: another version's, or left over. It is never ticked or run from here. */
  orphaned: boolean;
  /** Why its slots cannot be computed. */
  error?: string;
};

/** Ticks, boots and other admins may change a row between our read and our write, each once in a while. */
const ROUNDS = 5;

/** Who wants a change, and why. */
interface Wish {
  readonly code: string;
  readonly actor: string;
  readonly reason: string | undefined;
}

/** A change and its name in the audit; nothing when the row is already as wanted. */
type Decide = (row: ScheduleDoc, now: Date) => { action: string; change: ScheduleChange } | undefined;

@Injectable()
export class SchedulesAdmin {
  constructor(
    @Inject(SCHEDULES_COLLECTIONS) private readonly collections: SchedulesCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(SchedulesService) private readonly schedules: SchedulesService,
    @Inject(SchedulesTick) private readonly tick: SchedulesTick,
    @Inject(SideEffectService) private readonly sideEffect: SideEffectService,
    @Inject(AdminAudit) private readonly audit: AdminAudit,
  ) {}

  async list(): Promise<ScheduleView[]> {
    return (await allSchedules(this.collections)).map((row) => this.view(row));
  }

  /** The first slot is the next after now: what was missed while it was off is not made up for. */
  enable(code: string, actor: string, reason?: string): Promise<ScheduleView> {
    return this.change({ code, actor, reason }, (row, now) =>
      row.enabled
        ? undefined
        : { action: 'schedule.enable', change: { enabled: true, next_run_at: nextSlot(row, now) } },
    );
  }

  /** No further slots; one that has its row still runs. */
  disable(code: string, actor: string, reason?: string): Promise<ScheduleView> {
    return this.change({ code, actor, reason }, (row) =>
      row.enabled ? { action: 'schedule.disable', change: { enabled: false } } : undefined,
    );
  }

  /** Throws `invalid_cron`, before anything is written. */
  override(code: string, cron_override: string, actor: string, reason?: string): Promise<ScheduleView> {
    return this.change({ code, actor, reason }, (row, now) => {
      const next_run_at = nextSlot({ ...row, cron_override }, now);
      return { action: 'schedule.override', change: { cron_override, next_run_at } };
    });
  }

  clearOverride(code: string, actor: string, reason?: string): Promise<ScheduleView> {
    return this.change({ code, actor, reason }, (row, now) => {
      if (row.cron_override === undefined) return undefined;
      const { cron_override: _, ...rest } = row;
      const next_run_at = nextSlot(rest, now);
      return { action: 'schedule.clear_override', change: { cron_override: null, next_run_at } };
    });
  }

  /** One extra run beside the slots, also of a disabled schedule; never late, and under a key of its own. */
  async runNow(
    code: string,
    actor: string,
    reason?: string,
  ): Promise<{ code: string; slot: Date; dedupe_key: string }> {
    if (!this.schedules.has(code)) throw unknown(code);
    const slot = this.clock.now();
    const dedupe_key = `${code}:now:${this.ids.sortable()}`;
    const payload: SlotPayload = { slot: slot.toISOString(), run_now: true };
    await this.collections.inTransaction(async (tx) => {
      await this.sideEffect.enqueue(targetOf(code), payload, { code, dedupe_key }, tx);
      await this.audit.record(tx, { actor, action: 'schedule.run_now', subject: code, reason });
    });
    return { code, slot, dedupe_key };
  }

  /** The next slots, as they would come if the schedule stayed as it is and enabled. */
  async preview(code: string, count: number): Promise<Pick<ScheduleDoc, 'code' | 'timezone'> & PreviewedSlots> {
    const row = await findSchedule(this.collections, code);
    if (!row) throw unknown(code);
    const { next } = slotsOf(row);
    const slots = [nextSlot(row, this.clock.now())];
    while (slots.length < count) slots.push(next(slots.at(-1)!));
    return { code, cron: row.cron_override ?? row.cron, timezone: row.timezone, slots };
  }

  private async change(wish: Wish, decide: Decide): Promise<ScheduleView> {
    const { code } = wish;
    for (let round = 0; round < ROUNDS; round++) {
      const row = await findSchedule(this.collections, code);
      if (!row) throw unknown(code);
      const now = this.clock.now();
      const decision = decide(row, now);
      if (!decision) return this.view(row);
      const changed = await this.collections.inTransaction(async (tx) => this.write(tx, row, decision, wish, now));
      if (!changed) continue;
      this.tick.wake();
      return this.view(changed);
    }
    throw adminError(409, 'conflict', `schedule ${code} keeps being changed by others, try again`);
  }

  private async write(
    tx: Tx,
    row: ScheduleDoc,
    { action, change }: NonNullable<ReturnType<Decide>>,
    { actor, reason }: Wish,
    now: Date,
  ): Promise<ScheduleDoc | null> {
    const changed = await changeSchedule(this.collections, row, change, now, tx.session);
    const detail = change.cron_override ?? undefined;
    if (changed) await this.audit.record(tx, { actor, action, subject: row.code, reason, detail });
    return changed;
  }

  private view(row: ScheduleDoc): ScheduleView {
    const orphaned = !this.schedules.has(row.code);
    try {
      slotsOf(row);
      return { ...row, orphaned };
    } catch (error) {
      return { ...row, orphaned, error: errorText(error) };
    }
  }
}

export interface PreviewedSlots {
  cron: string;
  slots: Date[];
}

function unknown(code: string): Error {
  return notFound(`no schedule is called ${code}`);
}
