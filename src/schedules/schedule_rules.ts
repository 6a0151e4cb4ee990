/**
 * What a tick does with the slots that came due, and what becomes of a slot whose run starts late. Pure.
 *
 * Everything is computed from the slot that is stored, never from where a pod happens to be: a restart, a pause of the
 * whole system or a second pod come to the same answer.
 */
import type { CronSlots } from './cron.js';

/** run_once: a late slot still runs, of several only the newest. skip: a late slot does not run. */
export const MissedSlotPolicy = { runOnce: 'run_once', skip: 'skip' } as const;
export type MissedSlotPolicy = (typeof MissedSlotPolicy)[keyof typeof MissedSlotPolicy];

/** Why a slot got no run. */
export const SkipReason = {
  /** Its schedule skips late slots, and no pod ticked or no slot of the lane was free in time. */
  late: 'late',
  /** No pod ticked when it was due, and a newer slot runs instead. */
  missed: 'missed',
  /** It started late, and a newer slot waits already. */
  newerSlotWaiting: 'newer_slot_waiting',
  /** An earlier run of the same schedule took until now. */
  previousSlotRunning: 'previous_slot_running',
  /** Its target is paused, and one slot waits already. */
  targetPaused: 'target_paused',
} as const;
export type SkipReason = (typeof SkipReason)[keyof typeof SkipReason];

/** A slot counts as late beyond this, in ms. */
export const GRACE_MS = 60_000;
/** Longest sleep between two ticks, in ms. */
export const TICK_MS = 15_000;
/** Runs per slot where a schedule says nothing else. */
export const DEFAULT_RETRY_COUNT = 3;
const SKIP_UP_TO_MS = 5 * 60_000;

/** A schedule that comes again within 5 minutes need not make up for a slot. */
export function defaultPolicy(interval_ms: number): MissedSlotPolicy {
  return interval_ms <= SKIP_UP_TO_MS ? MissedSlotPolicy.skip : MissedSlotPolicy.runOnce;
}

export interface SkippedSlots {
  readonly first: Date;
  readonly last: Date;
  readonly reason: SkipReason;
}

export interface TickPlan {
  /** The newest slot that came due. */
  readonly newest: Date;
  readonly enqueue: boolean;
  readonly skipped?: SkippedSlots;
  /** The first slot after now. */
  readonly next: Date;
}

export interface TickInput {
  /** The stored `next_run_at`; due. */
  readonly stored: Date;
  readonly now: Date;
  readonly policy: MissedSlotPolicy;
  readonly slots: CronSlots;
}

/** Of all slots from the stored one up to now, at most the newest gets a row. */
export function planTick({ stored, now, policy, slots }: TickInput): TickPlan {
  const newest = slots.latest(stored, now) ?? stored;
  const next = slots.next(now);
  if (policy === MissedSlotPolicy.skip && isLate(newest, now)) {
    return { newest, enqueue: false, skipped: { first: stored, last: newest, reason: SkipReason.late }, next };
  }
  if (newest <= stored) return { newest, enqueue: true, next };
  const last = slots.latest(stored, new Date(newest.getTime() - 1)) ?? stored;
  return { newest, enqueue: true, skipped: { first: stored, last, reason: SkipReason.missed }, next };
}

/** The same plan while the target is paused and a slot of it waits already. */
export function withoutSlot(plan: TickPlan): TickPlan {
  const first = plan.skipped?.first ?? plan.newest;
  return { ...plan, enqueue: false, skipped: { first, last: plan.newest, reason: SkipReason.targetPaused } };
}

export function isLate(slot: Date, now: Date): boolean {
  return now.getTime() - slot.getTime() > GRACE_MS;
}

export interface LastRun {
  /** When it started. */
  readonly at: Date;
  readonly ms: number;
}

export interface LateSlot {
  readonly slot: Date;
  readonly now: Date;
  readonly policy: MissedSlotPolicy;
  /** A newer slot of the schedule waits for its run. */
  readonly newerWaits: boolean;
  /** The schedule's run before this one. */
  readonly lastRun?: LastRun | undefined;
}

/** Why a slot that starts late is not to run; nothing when it runs all the same. Only for its first run. */
export function skipLateSlot({ slot, now, policy, newerWaits, lastRun }: LateSlot): SkipReason | undefined {
  if (policy === MissedSlotPolicy.runOnce && !newerWaits) return undefined;
  if (lastRun && heldBy(lastRun, slot, now)) return SkipReason.previousSlotRunning;
  return policy === MissedSlotPolicy.skip ? SkipReason.late : SkipReason.newerSlotWaiting;
}

/** The run before was under way when the slot came due, and without it the slot would not have been late. */
function heldBy({ at, ms }: LastRun, slot: Date, now: Date): boolean {
  const ended = at.getTime() + ms;
  const waited = ended - slot.getTime();
  return waited > 0 && at < now && (waited > GRACE_MS || now.getTime() - ended <= GRACE_MS);
}

/** How long to sleep, given the next slots that are known, in ms. */
export function tickDelayMs(now: Date, slots: readonly Date[]): number {
  const soonest = Math.min(...slots.map((slot) => slot.getTime() - now.getTime()), TICK_MS);
  return Math.max(1, soonest);
}
