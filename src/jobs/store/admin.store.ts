/**
 * What admins read of `jobs`. Promises: every value of a filter is compared as it is, never taken for an operator; a
 * payload leaves only through `findDetail`; a count looks at no more rows than it is told.
 */
import type { mongo, Types } from 'mongoose';
import type { JobStatus } from '../jobs.types.js';
import { countWithin, findWithin, type Found } from './bounded_look.store.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

/** What a list may be narrowed by; all of it by equality. */
export interface JobFilter {
  readonly status?: JobStatus | undefined;
  readonly target?: string | undefined;
  readonly code?: string | undefined;
  readonly key?: string | undefined;
}

export type ListedJob = Omit<JobDoc, 'payload' | 'history'>;

export interface BoundedCount {
  readonly count: number;
  /** There may be more: the count stopped at its limit. */
  readonly at_least: boolean;
}

const LISTED = { payload: 0, history: 0 } as const;

/**
 * Newest first: a page by its number, or from before a row on. What no index narrows is looked for among `look` rows: the
 * page may then be short, or empty, and still say where to go on.
 */
export async function listJobs(
  collections: JobsCollections,
  filter: JobFilter,
  page: { before?: Types.ObjectId | undefined; skip: number; limit: number; look: number },
): Promise<Found<ListedJob>> {
  const { before: behind, skip, limit, look } = page;
  const { range, hint, others } = byIndex(filter);
  const options = { skip, limit, projection: LISTED };
  return findWithin<ListedJob>(collections, { range, hint, order: -1, behind, look }, equalTo(others), options);
}

/** Rows that match, among the newest `most` of their status (and of their target, for DEAD rows). */
export async function countJobs(collections: JobsCollections, filter: JobFilter, most: number): Promise<BoundedCount> {
  const { range, hint, others } = byIndex(filter);
  const look = { range, hint, order: -1, look: most + 1 } as const;
  const { count, looked_to } = await countWithin(collections, look, equalTo(others));
  return { count: Math.min(count, most), at_least: looked_to !== undefined };
}

/** All of one row. */
export async function findDetail({ jobs }: JobsCollections, _id: Types.ObjectId): Promise<JobDoc | undefined> {
  return (await jobs.findOne({ _id })) ?? undefined;
}

/** Does any row that waits or failed name this target? For targets this pod does not know. */
export async function isTargetUsed({ jobs }: JobsCollections, target: string): Promise<boolean> {
  // Each in an index's own order, so that the first row ends it.
  const ends: { filter: mongo.Filter<JobDoc>; sort: mongo.Sort; hint: string }[] = [
    {
      filter: { status: 'PENDING', lane: 'fast', target },
      sort: { partition: 1, order_key: 1, version: 1, _id: 1 },
      hint: 'in_order',
    },
    {
      filter: { status: 'PENDING', lane: 'long', target },
      sort: { priority: -1, next_run_at: 1, _id: 1 },
      hint: 'due_long',
    },
    { filter: { status: 'DEAD', target }, sort: { _id: -1 }, hint: 'dead' },
  ];
  for (const { filter, sort, hint } of ends) {
    if (await jobs.findOne(filter, { projection: { _id: 1 }, sort, hint })) return true;
  }
  return false;
}

/** What of a filter an index serves in the order of the list, and what is left of it. */
function byIndex({ status, target, ...rest }: JobFilter): {
  range: mongo.Filter<JobDoc>;
  hint: string;
  others: JobFilter;
} {
  if (status === undefined) return { range: {}, hint: '_id_', others: { target, ...rest } };
  if (status === 'DEAD' && target !== undefined) {
    return { range: equalTo({ status, target }), hint: 'dead', others: rest };
  }
  return { range: equalTo({ status }), hint: 'admin', others: { target, ...rest } };
}

function equalTo(filter: JobFilter): mongo.Filter<JobDoc> {
  return Object.fromEntries(given(filter).map(([name, value]) => [name, { $eq: value }])) as mongo.Filter<JobDoc>;
}

/** Only what is asked for: an `undefined` would match rows without the field. */
function given(filter: JobFilter): [string, string][] {
  return Object.entries(filter).flatMap(([name, value]) => (value === undefined ? [] : [[name, value as string]]));
}
