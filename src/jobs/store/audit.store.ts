/** The audit of admin changes: written in the transaction of the change, never taken back; only the count of one bulk action grows. */
import { oneBatch } from '../../common/utils/one_batch.js';
import { mongo, type ClientSession, type Types } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { AuditDoc } from './jobs.schema.js';

/** Part of the caller's transaction: an abort takes the row with it. */
export async function insertAudit(session: ClientSession, { audit }: JobsCollections, row: AuditDoc): Promise<void> {
  await audit.insertOne(row, { session });
}

/** A bound where there is none: without it some planners sort the whole collection. */
const LAST_ID = new mongo.ObjectId('f'.repeat(24));

/** Newest first, from before a row on. `_id` grows with time, and is the index every database has. */
export async function listAudit(
  { audit }: JobsCollections,
  { before, limit }: { before?: Types.ObjectId | undefined; limit: number },
): Promise<AuditDoc[]> {
  return audit.find({ _id: { $lt: before ?? LAST_ID } }, { sort: { _id: -1 }, ...oneBatch(limit) }).toArray();
}

/** Counts what one more transaction of the same action changed: one row per action, as true as what is committed. */
export async function addToAudit(
  session: ClientSession,
  { audit }: JobsCollections,
  { _id, count, ...facts }: AuditDoc,
): Promise<void> {
  await audit.updateOne({ _id }, { $setOnInsert: facts, $inc: { count } }, { session, upsert: true });
}
