/**
 * Bulk actions on DEAD rows, slice by slice, so that no transaction grows with the backlog. A slice is read outside of
 * its transaction and changed inside, guarded by DEAD: rows that another admin was faster with simply do not count.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { ClientSession, mongo, Types } from 'mongoose';
import { revival } from './admin_change.store.js';
import { countWithin, findWithin, type Found, type Look } from './bounded_look.store.js';
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

/**
 * The next rows behind `after`, in `_id` order: a row that dies again meanwhile is not met twice. What no index narrows is
 * looked for among `look` rows: a slice may be short, or empty, and still say where to go on.
 */
export async function readSlice(
  collections: JobsCollections,
  filter: DeadFilter,
  { after, limit, look }: { after?: Types.ObjectId | undefined; limit: number; look: number },
): Promise<Found<SliceRow>> {
  if (filter.ids) return readNamed(collections, filter, filter.ids, { after, limit });
  const { others, ...range } = byIndex(filter);
  const deads = { ...range, order: 1, behind: after, look } as const;
  return findWithin<SliceRow>(collections, deads, others, { limit, projection: SLICE });
}

async function readNamed(
  { jobs }: JobsCollections,
  filter: DeadFilter,
  ids: readonly Types.ObjectId[],
  { after, limit }: { after?: Types.ObjectId | undefined; limit: number },
): Promise<Found<SliceRow>> {
  const conditions = { ...deadRows(filter), _id: { $in: [...ids], ...(after && { $gt: after }) } };
  const rows = await jobs.find(conditions, { projection: SLICE, sort: { _id: 1 }, ...oneBatch(limit) }).toArray();
  return { rows, ...(rows.length === limit && { looked_to: rows.at(-1)!._id }) };
}

/** How many of the next `look` rows match, and where to go on. */
export async function countDead(
  collections: JobsCollections,
  filter: DeadFilter,
  { after, look }: { after?: Types.ObjectId | undefined; look: number },
): Promise<{ count: number; looked_to?: Types.ObjectId }> {
  const { ids } = filter;
  if (ids) return { count: await collections.jobs.countDocuments({ ...deadRows(filter), _id: { $in: [...ids] } }) };
  const { others, ...range } = byIndex(filter);
  return countWithin(collections, { ...range, order: 1, behind: after, look }, others);
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
  const result = await jobs.updateMany({ _id: { $in: [...ids] }, status: 'DEAD' }, revival(now), { session });
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

/** What of a filter an index serves in the order of a slice, and what is left of it. */
function byIndex({ target, ...rest }: DeadFilter): Pick<Look, 'range' | 'hint'> & { others: mongo.Filter<JobDoc> } {
  const others = narrowedBy(rest);
  return target === undefined
    ? { range: { status: 'DEAD' }, hint: 'admin', others }
    : { range: { status: 'DEAD', target: { $eq: target } }, hint: 'dead', others };
}

function deadRows({ target, ...rest }: DeadFilter): mongo.Filter<JobDoc> {
  return { status: 'DEAD', ...(target !== undefined && { target: { $eq: target } }), ...narrowedBy(rest) };
}

function narrowedBy({ code, key, from, to }: DeadFilter): mongo.Filter<JobDoc> {
  return {
    ...(code !== undefined && { code: { $eq: code } }),
    ...(key !== undefined && { key: { $eq: key } }),
    ...((from ?? to) && { closed_at: { ...(from && { $gte: from }), ...(to && { $lt: to }) } }),
  };
}
