/**
 * Reads and defers the rows of the fast lane. Every read is bounded by its limit, served in index order, and names
 * `status` and `lane` so that the partial indexes apply.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { Types } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

const PENDING_FAST = { status: 'PENDING', lane: 'fast' } as const;

export interface CellId {
  readonly target: string;
  readonly partition: number;
}

/**
 * Which of these cells have due rows? One query for all of them, in index order: without the sort a server may look at the
 * whole backlog first. A cell appears once per row; `full` says that the limit was reached, so that cells behind a deep one
 * were not looked at.
 */
export async function findCellsWithWork(
  { jobs }: JobsCollections,
  { targets, partitions }: { readonly targets: readonly string[]; readonly partitions: readonly number[] },
  now: Date,
  limit: number,
): Promise<{ found: CellId[]; full: boolean }> {
  const rows = (await jobs
    .find(
      {
        ...PENDING_FAST,
        target: targets.length === 1 ? targets[0]! : { $in: [...targets] },
        partition: { $in: [...partitions] },
        next_run_at: { $lte: now },
      },
      {
        projection: { _id: 0, target: 1, partition: 1 },
        sort: { target: 1, partition: 1, next_run_at: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'due_fast',
      },
    )
    .toArray()) as CellId[];
  const found = rows.filter(
    ({ target, partition }, index) => rows[index - 1]?.target !== target || rows[index - 1]?.partition !== partition,
  );
  return { found, full: rows.length >= limit };
}

/** The probe: which keys of the cell have due rows, oldest first. Answered from the index alone. */
export async function probeDueKeys(
  { jobs }: JobsCollections,
  { target, partition }: CellId,
  now: Date,
  limit: number,
): Promise<string[]> {
  const rows = await jobs
    .find(
      { ...PENDING_FAST, target, partition, next_run_at: { $lte: now } },
      {
        projection: { _id: 0, order_key: 1 },
        sort: { next_run_at: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'due_fast',
      },
    )
    .toArray();
  return rows.map((row) => row.order_key);
}

/** What of the keys to read: the rows of these (light), or everything behind a cursor (a walk through a backlog). */
export type ReadRange = { readonly keys: readonly string[] } | { readonly after: string };

/** The ordered read: rows by (order_key, version, _id), so that each key comes from its head on without a gap. */
export async function readOrdered(
  { jobs }: JobsCollections,
  { target, partition }: CellId,
  range: ReadRange,
  limit: number,
): Promise<JobDoc[]> {
  // Always with a lower bound: without one a planner may take another index and sort everything.
  const order_key = 'keys' in range ? { $in: [...range.keys] } : { $gt: range.after };
  return jobs
    .find(
      { ...PENDING_FAST, target, partition, order_key },
      {
        projection: RUN_FIELDS,
        sort: { order_key: 1, version: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'in_order',
      },
    )
    .toArray()
    .then((rows) => rows.map((row) => Object.assign(row, { target, partition, lane: 'fast', status: 'PENDING' })));
}

/** What a run needs of its row; the rest of it is known from the query, or nobody's business but an admin's. */
const RUN_FIELDS = {
  lane: 0,
  status: 0,
  target: 0,
  partition: 0,
  priority: 0,
  run_at: 0,
  updated_at: 0,
  history: 0,
  last_error: 0,
} as const;

export interface Head extends CellId {
  readonly _id: Types.ObjectId;
  readonly order_key: string;
  readonly version: number;
  readonly next_run_at: Date;
}

/**
 * Moves the due followers of waiting heads to their head's time, so that they leave the probe and cannot clog it.
 * Only this cell's owner defers; if it dies before or after, the followers are merely due again, or still deferred.
 */
export async function deferFollowers({ jobs }: JobsCollections, heads: readonly Head[], now: Date): Promise<void> {
  await jobs.bulkWrite(
    heads.map(({ _id, target, partition, order_key, version, next_run_at }) => ({
      updateMany: {
        filter: {
          ...PENDING_FAST,
          target,
          partition,
          order_key,
          version: { $gte: version },
          _id: { $ne: _id },
          next_run_at: { $lte: now },
        },
        update: { $set: { next_run_at } },
        hint: 'in_order',
      },
    })),
    { ordered: false },
  );
}

/**
 * Which of these heads are gone, although their followers were just deferred behind them? Only an admin takes a waiting
 * head away, in a transaction that releases what it sees deferred. So each head is written here: a cancel that had not seen
 * the deferral conflicts with this write and looks again, or had come first and leaves no head. Ask after the deferral.
 */
export async function goneHeads<H extends Pick<Head, '_id'>>(
  { jobs }: JobsCollections,
  heads: readonly H[],
  now: Date,
): Promise<H[]> {
  const waiting = { _id: { $in: heads.map(({ _id }) => _id) }, ...PENDING_FAST };
  const { matchedCount } = await jobs.updateMany(waiting, { $set: { updated_at: now } });
  if (matchedCount === heads.length) return [];
  const there = await jobs.find(waiting, { projection: { _id: 1 } }).toArray();
  return heads.filter(({ _id }) => !there.some((row) => row._id.equals(_id)));
}

export interface KeyRef extends CellId {
  readonly order_key: string;
  /** Of its head that is gone: what was deferred behind it waits for exactly this time. */
  readonly next_run_at: Date;
}

/** A head that had waited is gone: its deferred followers come due again, never before the time their caller asked for. */
export async function releaseFollowers({ jobs }: JobsCollections, keys: readonly KeyRef[], now: Date): Promise<void> {
  await jobs.bulkWrite(
    keys.map(({ target, partition, order_key, next_run_at }) => ({
      updateMany: {
        filter: {
          ...PENDING_FAST,
          target,
          partition,
          order_key,
          next_run_at: { $gt: now },
          // A row that waits for its own retry keeps its own time; deferred, it had come due before.
          $or: [{ attempts: 0 }, { next_run_at }],
        },
        update: [{ $set: { next_run_at: { $max: ['$run_at', now] } } }],
        // The other index of these rows would lead through all that wait in the cell.
        hint: 'in_order',
      },
    })),
    { ordered: false },
  );
}

/** The rows of a dead owner's mark whose result nobody recorded. */
export async function findUnsettled(
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
  token: string,
): Promise<JobDoc[]> {
  return jobs
    .find(
      { _id: { $in: [...ids] }, status: 'PENDING', outcome_token: { $ne: token } },
      { projection: { payload: 0, headers: 0 } },
    )
    .toArray();
}
