/**
 * Every query of the schedules. A schedule's row is written by ticks of any pod, by boots of any version and by admins,
 * so each write names what it read: `unchanged` for everything the next slot was computed from. Matched nothing: somebody
 * else was faster, which is a normal answer.
 */
import type { ClientSession, Connection, mongo } from 'mongoose';
import mongoose from 'mongoose';
import { createIndexes } from '../common/utils/indexes.js';
import { engineDatabase, type EngineTransaction } from '../common/utils/engine_database.js';
import { isDuplicateKey } from '../common/utils/write_errors.js';
import type { DeclaredFields } from './schedule_declaration.js';
import type { SkippedSlots, SkipReason } from './schedule_rules.js';
import { SCHEDULE_INDEXES, type ScheduleDoc, type SlotResult } from './schedules.schema.js';

/** What schedules read of rows that belong to the engine. */
interface SlotRow {
  target: string;
  lane: string;
  status: string;
  payload: { slot?: string; run_now?: boolean };
}

interface TargetState {
  _id: string;
  state: string;
}

export interface SchedulesCollections {
  readonly schedules: mongo.Collection<ScheduleDoc>;
  readonly jobs: mongo.Collection<SlotRow>;
  readonly targets: mongo.Collection<TargetState>;
  readonly inTransaction: EngineTransaction;
}

export const SCHEDULES_COLLECTIONS = Symbol('sidelane.schedules.collections');

/** Opens the collections, with verified indexes: without the unique one two boots would make two rows of a code. */
export async function openSchedules(
  connection: Connection,
  { command_timeout_ms }: { readonly command_timeout_ms: number },
): Promise<SchedulesCollections> {
  const database = await engineDatabase(connection, command_timeout_ms);
  const schedules = database.collection<ScheduleDoc>('schedules');
  await createIndexes(schedules, SCHEDULE_INDEXES);
  return {
    schedules,
    jobs: database.collection<SlotRow>('jobs'),
    targets: database.collection<TargetState>('job_targets'),
    inTransaction: database.inTransaction,
  };
}

/**
 * What a slot is computed from; a write with this filter fails when any of it changed since it was read. `last_slot_at`
 * as well: a tick that decided about a slot meanwhile changed nothing else that an admin or a boot looks at, and the
 * slot would come due again after it ran. A stored `null` is matched as it stands.
 */
function unchanged(row: ScheduleDoc): mongo.Filter<ScheduleDoc> {
  const { code, cron, timezone, enabled } = row;
  return {
    code,
    cron,
    timezone,
    enabled,
    cron_override: row.cron_override === undefined ? { $exists: false } : row.cron_override,
    last_slot_at: row.last_slot_at ?? { $exists: false },
  };
}

export function allSchedules({ schedules }: SchedulesCollections): Promise<ScheduleDoc[]> {
  return schedules.find().sort({ code: 1 }).toArray() as Promise<ScheduleDoc[]>;
}

/** Codes that somebody counts on, declared here or not; schedules are few, and no more than `limit` are read. */
export async function enabledCodes({ schedules }: SchedulesCollections, limit: number): Promise<string[]> {
  const rows = await schedules.find({ enabled: true }, { projection: { _id: 0, code: 1 }, limit }).toArray();
  return rows.map(({ code }) => code);
}

export function findSchedule(
  { schedules }: SchedulesCollections,
  code: string,
  session?: ClientSession,
): Promise<ScheduleDoc | null> {
  return schedules.findOne({ code }, { ...(session && { session }) });
}

/** Of these codes, the enabled ones whose next slot comes up to `until`; soonest first. */
export function schedulesUpTo(
  { schedules }: SchedulesCollections,
  codes: readonly string[],
  until: Date,
): Promise<ScheduleDoc[]> {
  return schedules
    .find({ enabled: true, next_run_at: { $lte: until }, code: { $in: [...codes] } }, { hint: 'due' })
    .sort({ next_run_at: 1 })
    .toArray() as Promise<ScheduleDoc[]>;
}

/** First boot that declares the code. False: another pod was faster, or it was there. Safe to repeat. */
export async function insertSchedule(
  { schedules }: SchedulesCollections,
  declared: DeclaredFields,
  next_run_at: Date,
  now: Date,
): Promise<boolean> {
  const row = { ...declared, enabled: true, next_run_at, created_at: now, updated_at: now };
  try {
    await schedules.insertOne({ _id: new mongoose.Types.ObjectId(), ...row });
    return true;
  } catch (error) {
    if (!isDuplicateKey(error)) throw error;
    return false;
  }
}

/** A boot whose code says something else than the row. False: the row changed since it was read. */
export async function updateDeclared(
  { schedules }: SchedulesCollections,
  row: ScheduleDoc,
  declared: DeclaredFields,
  next_run_at: Date | undefined,
  now: Date,
): Promise<boolean> {
  const set = { ...declared, updated_at: now, ...(next_run_at && { next_run_at }) };
  const { matchedCount } = await schedules.updateOne(unchanged(row), { $set: set });
  return matchedCount === 1;
}

export interface Advance {
  readonly newest: Date;
  readonly next: Date;
  readonly skipped?: SkippedSlots | undefined;
  readonly now: Date;
}

/**
 * Moves a schedule past its due slots, in the transaction that inserts the slot's row. The old `next_run_at` is the
 * fence: of several pods that saw the slot due one matches, also when a pod stalled so long between its read and this
 * write that the slot has run and its row is gone. Die before the commit and nothing happened: any tick does it again.
 */
export async function advance(
  { schedules }: SchedulesCollections,
  row: ScheduleDoc,
  { newest, next, skipped, now }: Advance,
  session: ClientSession,
): Promise<boolean> {
  const set = {
    next_run_at: next,
    updated_at: now,
    ...(skipped && { last_skip_reason: skipped.reason }),
  };
  const max = { last_slot_at: newest, ...(skipped && { last_skipped_at: skipped.last }) };
  const filter = { ...unchanged(row), next_run_at: row.next_run_at! };
  const { matchedCount } = await schedules.updateOne(filter, { $set: set, $max: max }, { session });
  return matchedCount === 1;
}

export async function isPaused({ targets }: SchedulesCollections, target: string): Promise<boolean> {
  const found = await targets.findOne({ _id: target, state: 'paused' }, { projection: { _id: 1 } });
  return found !== null;
}

/** Does a slot of this target, newer than `after` if given, wait for its run? Runs an admin asked for are no slots. */
export async function slotWaits({ jobs }: SchedulesCollections, target: string, after?: Date): Promise<boolean> {
  const slot = after ? { $gt: after.toISOString() } : { $exists: true };
  const filter = { target, status: 'PENDING', lane: 'long', 'payload.slot': slot };
  const found = await jobs.findOne({ ...filter, 'payload.run_now': { $exists: false } }, { projection: { _id: 1 } });
  return found !== null;
}

/** A slot that ended without its handler. The reason belongs to the newest skipped slot, so an older one keeps quiet. */
export async function recordSkip(
  { schedules }: SchedulesCollections,
  code: string,
  slot: Date,
  reason: SkipReason,
): Promise<void> {
  const older = [{ last_skipped_at: { $exists: false } }, { last_skipped_at: { $lt: slot } }];
  await schedules.updateOne({ code, $or: older }, { $set: { last_skipped_at: slot, last_skip_reason: reason } });
}

export interface EndedRun {
  readonly at: Date;
  readonly ms: number;
  readonly result: SlotResult;
  /** Missing for a run an admin asked for: it stands for no slot. */
  readonly slot?: Date | undefined;
}

/**
 * The run that ended last. One code runs once at a time, but a note that was given up may be carried out behind that of the
 * next run, which it must not take the place of: whether a late slot is still run depends on it.
 */
export async function recordRun(
  { schedules }: SchedulesCollections,
  code: string,
  { at, ms, result, slot }: EndedRun,
): Promise<void> {
  const last_run = { $cond: [{ $gt: ['$last_run.at', at] }, '$last_run', { at, ms, result }] };
  const last_run_at = slot && { $max: ['$last_run_at', slot] };
  await schedules.updateOne({ code }, [{ $set: { last_run, ...(last_run_at && { last_run_at }) } }]);
}

export interface ScheduleChange {
  enabled?: boolean;
  /** `null` takes the override away. */
  cron_override?: string | null;
  next_run_at?: Date;
}

/** What an admin changes. Null: the row changed since it was read; read again and decide again. */
export async function changeSchedule(
  { schedules }: SchedulesCollections,
  row: ScheduleDoc,
  { cron_override, ...change }: ScheduleChange,
  now: Date,
  session: ClientSession,
): Promise<ScheduleDoc | null> {
  const update: mongo.UpdateFilter<ScheduleDoc> = {
    $set: { ...change, ...(typeof cron_override === 'string' && { cron_override }), updated_at: now },
    ...(cron_override === null && { $unset: { cron_override: '' } }),
  };
  return schedules.findOneAndUpdate(unchanged(row), update, { session, returnDocument: 'after' });
}
