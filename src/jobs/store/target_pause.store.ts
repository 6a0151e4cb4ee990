/**
 * The shared pauses: one row of `job_targets` per target that is or was paused. No row, or `open`: the target runs.
 *
 * Who writes a row: the pod that found its target down, the pod that holds the permit for the probe, and admins. Fences:
 * - `token` names the last finding that the target is down. A probe knows the token it began under, so it opens (or
 *   extends) exactly that pause: once anybody found the target down later, or an admin acted, it matches nothing.
 * - `probe_by` and `probe_until` together name one permit: a pod takes the next one only after that time.
 * - the engine's filters say `by: 'engine'`: no write of the engine touches an admin's pause.
 * Matching nothing is a normal answer; whoever got it reads the row and follows it.
 */
import type { ClientSession, mongo } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { TargetDoc } from './jobs.schema.js';
import { isDuplicateKey, labelTransient } from './write_errors.js';

const NO_PROBE = { probe_at: '', probe_by: '', probe_until: '', token: '', cause: '' } as const;

export interface AdminWish {
  readonly target: string;
  /** Who, as the host's guard left it on the request. */
  readonly actor: string;
  readonly reason: string;
  readonly now: Date;
}

export type Change = 'changed' | 'unchanged';

/** Every target that is or was paused, by name. One query, also what each pod asks once per heartbeat. */
export async function listTargets({ targets }: JobsCollections): Promise<TargetDoc[]> {
  return targets.find({}, { sort: { _id: 1 } }).toArray();
}

export async function readTarget({ targets }: JobsCollections, target: string): Promise<TargetDoc | undefined> {
  return (await targets.findOne({ _id: target })) ?? undefined;
}

/**
 * Rests the target until an admin resumes it, in the admin's transaction. Takes over a pause of the engine: its probe
 * under way then matches nothing. `unchanged`: an admin had paused it already, whose reason stays.
 */
export async function pauseByAdmin(
  session: ClientSession,
  { targets }: JobsCollections,
  { target, actor, reason, now }: AdminWish,
): Promise<Change> {
  const paused = { state: 'paused', since: now, reason, by: 'admin', actor } as const;
  const row = await targets.findOne({ _id: target }, { session });
  if (row?.state === 'paused' && row.by === 'admin') return 'unchanged';
  if (!row) return insertIn(session, targets, { _id: target, ...paused });
  // A row that changed since the transaction's snapshot is a write conflict: the driver runs the whole attempt again.
  const result = await targets.updateOne({ _id: target }, { $set: paused, $unset: NO_PROBE }, { session });
  return result.matchedCount === 1 ? 'changed' : 'unchanged';
}

/** Opens the target, whoever paused it, in the admin's transaction. `unchanged`: it was open. */
export async function resumeByAdmin(
  session: ClientSession,
  { targets }: JobsCollections,
  { target, actor, reason, now }: AdminWish,
): Promise<Change> {
  const result = await targets.updateOne(
    { _id: target, state: 'paused' },
    { $set: { state: 'open', since: now, reason, by: 'admin', actor }, $unset: NO_PROBE },
    { session },
  );
  return result.matchedCount === 1 ? 'changed' : 'unchanged';
}

async function insertIn(
  session: ClientSession,
  targets: mongo.Collection<TargetDoc>,
  row: TargetDoc,
): Promise<'changed'> {
  try {
    await targets.insertOne(row, { session });
    return 'changed';
  } catch (error) {
    if (isDuplicateKey(error)) labelTransient(error); // the engine paused it between our look and our insert
    throw error;
  }
}

/** What a run found out about a target that nothing reached. */
export interface Finding {
  readonly token: string;
  readonly reason: string;
  /** Row whose run found it. */
  readonly cause: string;
  readonly now: Date;
  readonly probe_at: Date;
}

/**
 * Pauses an open target. Two pods may find it down at once: one row wins, the other is told `unchanged`, and so is who
 * meets an admin's pause. If the reply is lost, the same call again answers `unchanged` on a row with its own token.
 */
export async function pauseByEngine(
  { targets }: JobsCollections,
  target: string,
  { token, reason, cause, now, probe_at }: Finding,
): Promise<Change> {
  try {
    const result = await targets.updateOne(
      { _id: target, state: 'open' },
      {
        $set: { state: 'paused', since: now, reason, by: 'engine', token, cause, probe_at },
        $unset: { actor: '', probe_by: '', probe_until: '' },
      },
      { upsert: true },
    );
    return result.matchedCount + result.upsertedCount === 1 ? 'changed' : 'unchanged';
  } catch (error) {
    if (isDuplicateKey(error)) return 'unchanged'; // the row is there and not open: it is paused already
    throw error;
  }
}

/** The probe that began under `began` found the target still down: its permit ends, the next probe waits its time. */
export async function extendPause(
  { targets }: JobsCollections,
  target: string,
  began: string,
  { token, reason, cause, probe_at }: Finding,
): Promise<Change> {
  const result = await targets.updateOne(
    { _id: target, state: 'paused', by: 'engine', token: began },
    { $set: { token, reason, cause, probe_at }, $unset: { probe_by: '', probe_until: '' } },
  );
  return result.matchedCount === 1 ? 'changed' : 'unchanged';
}

/** The probe that began under `began` went through. Not after a later finding that the target is down. */
export async function openAfterProbe(
  { targets }: JobsCollections,
  target: string,
  began: string,
  { reason, now }: { reason: string; now: Date },
): Promise<Change> {
  const result = await targets.updateOne(
    { _id: target, state: 'paused', by: 'engine', token: began },
    { $set: { state: 'open', since: now, reason }, $unset: NO_PROBE },
  );
  return result.matchedCount === 1 ? 'changed' : 'unchanged';
}

/**
 * Takes the one permit to probe. Of many pods exactly one matches: the update of the row is atomic. If its holder dies,
 * or the reply is lost, nobody probes until `until`; then the next one does.
 */
export async function takeProbe(
  { targets }: JobsCollections,
  target: string,
  { pod, now, until }: { pod: string; now: Date; until: Date },
): Promise<TargetDoc | undefined> {
  const row = await targets.findOneAndUpdate(
    {
      _id: target,
      state: 'paused',
      by: 'engine',
      probe_at: { $lte: now },
      $or: [{ probe_until: { $exists: false } }, { probe_until: { $lte: now } }],
    },
    { $set: { probe_by: pod, probe_until: until } },
    { returnDocument: 'after' },
  );
  return row ?? undefined;
}

/** The holder had nothing to run: whoever has may probe at once. A lost reply only costs the rest of the permit's time. */
export async function giveBackProbe(
  { targets }: JobsCollections,
  target: string,
  { token, pod, until }: { token: string; pod: string; until: Date },
): Promise<Change> {
  const result = await targets.updateOne(
    { _id: target, token, probe_by: pod, probe_until: until },
    { $unset: { probe_by: '', probe_until: '' } },
  );
  return result.matchedCount === 1 ? 'changed' : 'unchanged';
}
