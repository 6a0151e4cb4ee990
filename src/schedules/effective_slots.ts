/** The slots a schedule's row stands for: an admin's override before the code's expression. Pure. */
import { parseCron, type CronSlots } from './cron.js';
import type { ScheduleDoc } from './schedules.schema.js';

type SlotFields = Pick<ScheduleDoc, 'cron' | 'cron_override' | 'timezone' | 'last_slot_at'>;

/** Throws `invalid_cron` or `invalid_timezone` for a row that cannot be read; it concerns that schedule alone. */
export function slotsOf({ cron, cron_override, timezone }: SlotFields): CronSlots {
  const overridden = cron_override !== undefined;
  const fields = { cron: overridden ? 'cron_override' : 'cron', timezone: 'timezone' };
  return parseCron(overridden ? cron_override : cron, timezone, fields);
}

/** The next slot after now, and after every slot that a tick has decided about: a clock a moment behind repeats none. */
export function nextSlot(row: SlotFields, now: Date): Date {
  const { last_slot_at } = row;
  return slotsOf(row).next(last_slot_at && last_slot_at > now ? last_slot_at : now);
}
