/**
 * What admins change in `jobs`: one row at a time, in a transaction with its audit row.
 *
 * Who else may write these rows? Their lane, another admin, the retention. Each write names the state it expects; a row
 * that changed after the transaction's snapshot is a write conflict, the driver runs the whole attempt again, and that
 * attempt sees the other's change and matches nothing.
 *
 * `bumpRevision` comes first in a transaction that touches a waiting fast-lane row: from then until the commit no mark
 * can be set on the partition, and afterwards none passes that was prepared from an older page. If we die before the
 * commit nothing happened; if its reply is lost the driver asks again, and an admin who repeats the request gets a 409.
 */
import type { ClientSession, Types } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { ListedJob } from './admin.store.js';
import type { CancelRequest, InflightMark, JobDoc } from './jobs.schema.js';
import { CLAIM_FIELDS } from './outcome_update.js';

const LISTED = { payload: 0, history: 0 } as const;
const PENDING_FAST = { status: 'PENDING', lane: 'fast' } as const;

/** Where the row stands now, outside of any transaction: its lane and partition never change. */
export async function lookAt({ jobs }: JobsCollections, _id: Types.ObjectId): Promise<ListedJob | undefined> {
  return ((await jobs.findOne({ _id }, { projection: LISTED })) as ListedJob | null) ?? undefined;
}

/** The row as the transaction sees it. */
export async function readRow(
  session: ClientSession,
  { jobs }: JobsCollections,
  _id: Types.ObjectId,
): Promise<ListedJob | undefined> {
  return ((await jobs.findOne({ _id }, { session, projection: LISTED })) as ListedJob | null) ?? undefined;
}

/**
 * What makes a DEAD row wait again, with a fresh budget. `retried_at` tells its run from a first one, which the budget no
 * longer does: a slot's would count as late, and be deleted without its handler. `outcome_token` stays: without it a
 * takeover would take the row for one in flight under its old mark.
 */
export function revival(now: Date): { $set: Partial<JobDoc>; $unset: typeof ENDED } {
  const fresh = { status: 'PENDING', attempts: 0, crashes: 0 } as const;
  return { $set: { ...fresh, next_run_at: now, retried_at: now, updated_at: now }, $unset: ENDED };
}

const ENDED = { ...CLAIM_FIELDS, closed_at: '', expire_at: '', cancel_requested: '' } as const;

/** DEAD to PENDING; nothing when the row is not DEAD (any more). */
export async function reviveDead(
  session: ClientSession,
  { jobs }: JobsCollections,
  _id: Types.ObjectId,
  now: Date,
): Promise<ListedJob | undefined> {
  const row = await jobs.findOneAndUpdate({ _id, status: 'DEAD' }, revival(now), {
    session,
    returnDocument: 'after',
    projection: LISTED,
  });
  return (row as ListedJob | null) ?? undefined;
}

/** Removes a row that is in this state; nothing when it is not (any more). */
export async function removeIn(
  session: ClientSession,
  { jobs }: JobsCollections,
  _id: Types.ObjectId,
  status: 'DEAD' | 'PENDING',
): Promise<ListedJob | undefined> {
  const row = await jobs.findOneAndDelete({ _id, status }, { session, projection: LISTED });
  return (row as ListedJob | null) ?? undefined;
}

/** Asks for the end of a RUNNING row. The first request stands: a second one changes nothing. */
export async function requestCancel(
  session: ClientSession,
  { jobs }: JobsCollections,
  _id: Types.ObjectId,
  cancel_requested: CancelRequest,
): Promise<'requested' | 'lost'> {
  const result = await jobs.updateOne(
    { _id, status: 'RUNNING', cancel_requested: { $exists: false } },
    { $set: { cancel_requested, updated_at: cancel_requested.at } },
    { session },
  );
  return result.matchedCount === 1 ? 'requested' : 'lost';
}

/** Outdates every page of these partitions that was read before; answers the marks of a single one. */
export async function bumpRevision(
  session: ClientSession,
  { partitions }: JobsCollections,
  partition: number,
): Promise<InflightMark[]> {
  const row = await partitions.findOneAndUpdate(
    { partition },
    { $inc: { rev: 1 } },
    { session, returnDocument: 'after', projection: { _id: 0, inflight: 1 } },
  );
  return row?.inflight ?? [];
}

export type KeyOf = Pick<JobDoc, 'target' | 'partition' | 'order_key'>;

/** Is this row the one its key waits for? */
export async function isHead(
  session: ClientSession,
  { jobs }: JobsCollections,
  { target, partition, order_key }: KeyOf,
  _id: Types.ObjectId,
): Promise<boolean> {
  const head = await jobs.findOne(
    { ...PENDING_FAST, target, partition, order_key },
    { session, sort: { version: 1, _id: 1 }, projection: { _id: 1 }, hint: 'in_order' },
  );
  return head?._id.equals(_id) ?? false;
}

/** The head that they waited for is gone: followers come due again, never before the time their caller asked for. */
export async function releaseKey(
  session: ClientSession,
  { jobs }: JobsCollections,
  { target, partition, order_key, next_run_at }: KeyOf & Pick<JobDoc, 'next_run_at'>,
  now: Date,
): Promise<void> {
  // A row that waits for its own retry keeps its own time; deferred to its head's, it had come due before.
  const deferred = { next_run_at: { $gt: now }, $or: [{ attempts: 0 }, { next_run_at }] };
  await jobs.updateMany(
    { ...PENDING_FAST, target, partition, order_key, ...deferred },
    [{ $set: { next_run_at: { $max: ['$run_at', now] } } }],
    { session, hint: 'in_order' },
  );
}
