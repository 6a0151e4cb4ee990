/** Sends the writes that end runs. Each is fenced (outcome_update.ts) and may be repeated after a lost reply. */
import type { ClientSession, mongo } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';
import { deleteOperations, doneUpdate, fenceOf, type Operation, type ReadRow } from './outcome_update.js';

/** Deletes finished rows; the answer may be short of `rows` when somebody else ended a row meanwhile. */
export async function deleteFinished({ jobs }: JobsCollections, rows: readonly ReadRow[]): Promise<number> {
  const operations = deleteOperations(rows);
  // Nearly always one statement: a plain delete costs the driver half of what a bulk write does.
  const [only] = operations;
  const result =
    operations.length === 1 && only && 'deleteMany' in only
      ? await jobs.deleteMany(only.deleteMany.filter)
      : await jobs.bulkWrite(operations, { ordered: false });
  return result.deletedCount;
}

/** Writes failures, stamps and judgements in one command; answers how many rows matched their fence. */
export async function writeOutcomes({ jobs }: JobsCollections, operations: readonly Operation[]): Promise<number> {
  const result = await jobs.bulkWrite([...operations], { ordered: false });
  return result.matchedCount + result.deletedCount;
}

/** One fenced update in somebody's transaction; answers the row as it is now, or nothing when it was lost. */
export async function writeOutcomeIn(
  session: ClientSession,
  { jobs }: JobsCollections,
  { updateOne: { filter, update } }: Extract<Operation, { updateOne: unknown }>,
): Promise<JobDoc | undefined> {
  const row = await jobs.findOneAndUpdate(filter, update as mongo.UpdateFilter<JobDoc>, {
    session,
    returnDocument: 'after',
  });
  return row ?? undefined;
}

/** Ends a finished row in somebody's transaction: gone, or DONE where its target keeps it. */
export async function finishIn(
  session: ClientSession,
  { jobs }: JobsCollections,
  row: ReadRow,
  keep: { now: Date; keep_done_ms: number } | undefined,
): Promise<'written' | 'lost'> {
  if (keep) {
    const update = doneUpdate(keep.now, keep.keep_done_ms);
    const result = await jobs.updateOne(fenceOf(row), update, { session });
    return result.matchedCount === 1 ? 'written' : 'lost';
  }
  const result = await jobs.deleteOne(fenceOf(row), { session });
  return result.deletedCount === 1 ? 'written' : 'lost';
}
