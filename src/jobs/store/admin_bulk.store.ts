/**
 * Bulk actions on DEAD rows, slice by slice, so that no transaction grows with the backlog. A slice is read outside of
 * its transaction and changed inside, guarded by DEAD: rows that another admin was faster with simply do not count.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { ClientSession, mongo, Types } from 'mongoose';
import { REVIVED } from './admin_change.store.js';
import type { BoundedCount } from './admin.store.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

export interface DeadFilter {
  readonly ids?: readonly Types.ObjectId[] | undefined;
  readonly target?: string | undefined;
  readonly code?: string | undefined;
  readonly key?: string | undefined;
  /** Went DEAD at or after this time. */
  readonly from?: Date | undefined;
  /** Went DEAD before this time. */
  readonly to?: Date | undefined;
}

const SLICE = { _id: 1, code: 1, target: 1, lane: 1, partition: 1, dedupe_key: 1, attempts: 1 } as const;
export type SliceRow = Pick<JobDoc, keyof typeof SLICE>;

/** The next rows behind `after`, in `_id` order: a row that dies again meanwhile is not met twice. */
export async function readSlice(
  { jobs }: JobsCollections,
  filter: DeadFilter,
  { after, limit }: { after?: Types.ObjectId | undefined; limit: number },
): Promise<SliceRow[]> {
  const conditions = after ? { $and: [deadRows(filter), { _id: { $gt: after } }] } : deadRows(filter);
  // The index whose order is the slice's: a planner must not read a whole backlog to sort it.
  const hint = filter.ids ? {} : { hint: filter.target === undefined ? 'admin' : 'dead' };
  return jobs.find(conditions, { projection: SLICE, sort: { _id: 1 }, ...oneBatch(limit), ...hint }).toArray();
}

/** Rows that match, up to `most`. */
export async function countDead({ jobs }: JobsCollections, filter: DeadFilter, most: number): Promise<BoundedCount> {
  const count = await jobs.countDocuments(deadRows(filter), { limit: most + 1 });
  return { count: Math.min(count, most), at_least: count > most };
}

/** One write for all partitions of a slice; comes first in the transaction (see admin_change.store.ts). */
export async function bumpRevisions(
  session: ClientSession,
  { partitions }: JobsCollections,
  numbers: readonly number[],
): Promise<void> {
  if (numbers.length === 0) return;
  await partitions.updateMany({ partition: { $in: [...numbers] } }, { $inc: { rev: 1 } }, { session });
}

export async function reviveSlice(
  session: ClientSession,
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
  now: Date,
): Promise<number> {
  const result = await jobs.updateMany(
    { _id: { $in: [...ids] }, status: 'DEAD' },
    { $set: { ...REVIVED.state, next_run_at: now, updated_at: now }, $unset: REVIVED.ended },
    { session },
  );
  return result.modifiedCount;
}

/** Answers the rows that this call removed. */
export async function removeSlice(
  session: ClientSession,
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
): Promise<SliceRow[]> {
  const dead = { _id: { $in: [...ids] }, status: 'DEAD' } as const;
  const rows = await jobs.find(dead, { session, projection: SLICE }).toArray();
  // The same snapshot: a row that somebody changed since fails the attempt instead of staying.
  await jobs.deleteMany(dead, { session });
  return rows;
}

function deadRows({ ids, target, code, key, from, to }: DeadFilter): mongo.Filter<JobDoc> {
  return {
    status: 'DEAD',
    ...(target !== undefined && { target: { $eq: target } }),
    ...(code !== undefined && { code: { $eq: code } }),
    ...(key !== undefined && { key: { $eq: key } }),
    ...(ids && { _id: { $in: [...ids] } }),
    ...((from ?? to) && { closed_at: { ...(from && { $gte: from }), ...(to && { $lt: to }) } }),
  };
}
