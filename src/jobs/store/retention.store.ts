/**
 * Removes finished rows whose time is over (`keep_done_ms`, `keep_dead_ms`), slice by slice.
 *
 * Who else may write these rows? The server's TTL monitor, which only takes the same ones away; another pod's pass, which
 * does the same; an admin who retries a DEAD row, which takes `expire_at` away. So the delete names what it read again:
 * a row that was retried between our look and our delete does not match. If we die between the two, or the reply is
 * lost, the next pass finds what is left.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { mongo, Types } from 'mongoose';
import { JobStatus } from '../jobs.types.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

function expired(now: Date): mongo.Filter<JobDoc> {
  // `$exists` as in the index, or its partial filter would not apply.
  return { expire_at: { $exists: true, $lte: now }, status: { $in: [JobStatus.done, JobStatus.dead] } };
}

/** Ids of expired rows, those first whose time ended first; at most `limit`. */
export async function findExpired({ jobs }: JobsCollections, now: Date, limit: number): Promise<Types.ObjectId[]> {
  const options = { projection: { _id: 1 }, sort: { expire_at: 1 }, hint: 'expiry' } as const;
  // `batchSize`: a first batch would otherwise end after 101 rows, and a second one be asked for.
  const rows = await jobs.find(expired(now), { ...options, ...oneBatch(limit) }).toArray();
  return rows.map((row) => row._id);
}

/** Deletes those of `ids` that are still expired. Answers how many were. */
export async function deleteExpired(
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
  now: Date,
): Promise<number> {
  const result = await jobs.deleteMany({ _id: { $in: [...ids] }, ...expired(now) });
  return result.deletedCount;
}
