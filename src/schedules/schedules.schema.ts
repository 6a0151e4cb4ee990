/** The `schedules` collection: its fields (reference, section 3; design, section 3) and its indexes. */
import type { Types } from 'mongoose';
import type { IndexSpec } from '../common/utils/indexes.js';
import type { MissedSlotPolicy, SkipReason } from './schedule_rules.js';

export type SlotResult = 'success' | 'failure';

export interface ScheduleDoc {
  _id: Types.ObjectId;
  code: string;
  /** These four follow the code at every boot. */
  cron: string;
  timezone: string;
  missed_slot_policy: MissedSlotPolicy;
  /** Runs per slot, retries included. */
  retry_count: number;
  /** These two are an admin's. */
  enabled: boolean;
  cron_override?: string;
  /** The next slot; slots up to now are due. */
  next_run_at?: Date;
  /** The newest slot a tick has decided about: no slot up to it comes again, whatever a pod's clock says. */
  last_slot_at?: Date;
  /** Newest slot that ran. */
  last_run_at?: Date;
  /** The run that ended last, also one an admin asked for: when it started, how long it took. */
  last_run?: { at: Date; ms: number; result: SlotResult };
  /** Newest slot that got no run, and why. */
  last_skipped_at?: Date;
  last_skip_reason?: SkipReason;
  created_at: Date;
  updated_at: Date;
}

export const SCHEDULE_INDEXES: readonly IndexSpec[] = [
  { name: 'code', key: { code: 1 }, unique: true },
  { name: 'due', key: { next_run_at: 1 }, partialFilterExpression: { enabled: true } },
];
