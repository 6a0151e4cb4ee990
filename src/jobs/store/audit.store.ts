/** The audit of admin changes: rows are only ever added, in the transaction of the change they tell of. */
import type { ClientSession, Types } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { AuditDoc } from './jobs.schema.js';

/** Part of the caller's transaction: an abort takes the row with it. */
export async function insertAudit(session: ClientSession, { audit }: JobsCollections, row: AuditDoc): Promise<void> {
  await audit.insertOne(row, { session });
}

/** Newest first, from before a row on. `_id` grows with time, and is the index every database has. */
export async function listAudit(
  { audit }: JobsCollections,
  { before, limit }: { before?: Types.ObjectId | undefined; limit: number },
): Promise<AuditDoc[]> {
  const filter = before ? { _id: { $lt: before } } : {};
  return audit.find(filter, { sort: { _id: -1 }, limit, singleBatch: true }).toArray();
}
