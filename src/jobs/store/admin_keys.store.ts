/**
 * The keys of the fast lane as they stand in order, for the search of keys whose head waits. Each read is one range of
 * the index `in_order` and stops at its limit, however many rows wait.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { mongo } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

const WAITING = {
  _id: 1,
  target: 1,
  code: 1,
  partition: 1,
  key: 1,
  order_key: 1,
  version: 1,
  attempts: 1,
  crashes: 1,
  next_run_at: 1,
  last_error: 1,
} as const;
export type WaitingRow = Pick<JobDoc, keyof typeof WAITING>;

/** The last key that was looked at. */
export interface KeyPlace {
  readonly target: string;
  readonly partition: number;
  readonly order_key: string;
}

/** Rows of the keys behind a place, in order; `only` keeps to one target. Up to three reads: a range has one open end. */
export async function readKeysBehind(
  { jobs }: JobsCollections,
  { after, only, limit }: { after?: KeyPlace | undefined; only?: string | undefined; limit: number },
): Promise<WaitingRow[]> {
  const rows: WaitingRow[] = [];
  for (const range of rangesBehind(after, only)) {
    if (rows.length === limit) break;
    const found = await jobs
      .find(
        { status: 'PENDING', lane: 'fast', ...range },
        {
          projection: WAITING,
          sort: { target: 1, partition: 1, order_key: 1, version: 1, _id: 1 },
          ...oneBatch(limit - rows.length),
          hint: 'in_order',
        },
      )
      .toArray();
    rows.push(...found);
  }
  return rows;
}

function rangesBehind(after: KeyPlace | undefined, only: string | undefined): mongo.Filter<JobDoc>[] {
  if (!after) return [{ target: only === undefined ? { $gt: '' } : { $eq: only } }];
  const { target, partition, order_key } = after;
  return [
    { target: { $eq: target }, partition: { $eq: partition }, order_key: { $gt: order_key } },
    // The next number and name there can be: from "more than this one" a scan may step over all rows of this one.
    { target: { $eq: target }, partition: { $gte: partition + 1 } },
    ...(only === undefined ? [{ target: { $gte: `${target}\u0001` } }] : []),
  ];
}
