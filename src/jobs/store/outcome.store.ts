/** Sends the writes that end runs. Each is fenced (outcome_update.ts) and may be repeated after a lost reply. */
import type { mongo, Types } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

/** Deletes finished rows; the answer may be short of `ids` when somebody else ended a row meanwhile. */
export async function deleteFinished({ jobs }: JobsCollections, ids: readonly Types.ObjectId[]): Promise<number> {
  const result = await jobs.deleteMany({ _id: { $in: [...ids] }, status: 'PENDING' });
  return result.deletedCount;
}

/** Writes failures, stamps and judgements in one command; answers how many rows matched their fence. */
export async function writeOutcomes(
  { jobs }: JobsCollections,
  operations: mongo.AnyBulkWriteOperation<JobDoc>[],
): Promise<number> {
  const result = await jobs.bulkWrite(operations, { ordered: false });
  return result.matchedCount;
}
