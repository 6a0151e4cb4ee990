/**
 * What admins read of `jobs`. Promises: every value of a filter is compared as it is, never taken for an operator; a
 * payload leaves only through `findDetail`; a count looks at no more rows than it is told.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { mongo, Types } from 'mongoose';
import type { JobStatus } from '../jobs.types.js';
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

/** Newest first: a page by its number, or from before a row on. With a status alone the order is that of an index. */
export async function listJobs(
  { jobs }: JobsCollections,
  filter: JobFilter,
  page: { before?: Types.ObjectId | undefined; skip: number; limit: number },
): Promise<ListedJob[]> {
  return jobs
    .find(
      { ...equalTo(filter), ...(page.before && { _id: { $lt: page.before } }) },
      {
        projection: LISTED,
        sort: { _id: -1 },
        skip: page.skip,
        ...oneBatch(page.limit),
        ...newestFirst(filter),
      },
    )
    .toArray() as Promise<ListedJob[]>;
}

/** Rows that match, among the newest `most` of their status (and of their target, for DEAD rows). */
export async function countJobs({ jobs }: JobsCollections, filter: JobFilter, most: number): Promise<BoundedCount> {
  const { status, target, ...rest } = filter;
  const byIndex: JobFilter = status === 'DEAD' ? { status, target } : { status };
  const others: JobFilter = status === 'DEAD' ? rest : { target, ...rest };
  const conditions = given(others).map(([name, value]) => ({ $eq: [`$${name}`, { $literal: value }] }));
  const [found] = await jobs
    .aggregate<{ looked_at: number; count: number }>(
      [
        { $match: equalTo(byIndex) },
        // Without a condition any rows will do; with one, the newest are looked at.
        ...(status === undefined && conditions.length === 0 ? [] : [{ $sort: { _id: -1 } }]),
        { $limit: most + 1 },
        {
          $group: {
            _id: null,
            looked_at: { $sum: 1 },
            count: conditions.length === 0 ? { $sum: 1 } : { $sum: { $cond: [{ $and: conditions }, 1, 0] } },
          },
        },
      ],
      newestFirst(filter),
    )
    .toArray();
  if (!found) return { count: 0, at_least: false };
  return { count: Math.min(found.count, most), at_least: found.looked_at > most };
}

/** All of one row. */
export async function findDetail({ jobs }: JobsCollections, _id: Types.ObjectId): Promise<JobDoc | undefined> {
  return (await jobs.findOne({ _id })) ?? undefined;
}

/** Does any row that waits or failed name this target? For targets this pod does not know. */
export async function isTargetUsed({ jobs }: JobsCollections, target: string): Promise<boolean> {
  const ends: mongo.Filter<JobDoc>[] = [
    { status: 'PENDING', lane: 'fast', target },
    { status: 'PENDING', lane: 'long', target },
    { status: 'DEAD', target },
  ];
  for (const filter of ends) {
    if (await jobs.findOne(filter, { projection: { _id: 1 } })) return true;
  }
  return false;
}

/** The index whose order is the list's: a planner must not read a whole backlog to sort it. */
function newestFirst({ status, target }: JobFilter): { hint?: string } {
  if (status === undefined) return {};
  return { hint: status === 'DEAD' && target !== undefined ? 'dead' : 'admin' };
}

function equalTo(filter: JobFilter): mongo.Filter<JobDoc> {
  return Object.fromEntries(given(filter).map(([name, value]) => [name, { $eq: value }])) as mongo.Filter<JobDoc>;
}

/** Only what is asked for: an `undefined` would match rows without the field. */
function given(filter: JobFilter): [string, string][] {
  return Object.entries(filter).flatMap(([name, value]) => (value === undefined ? [] : [[name, value as string]]));
}
