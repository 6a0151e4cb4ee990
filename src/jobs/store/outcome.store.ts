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

/** How many rows matched their fence: `deleted` are those that an admin had cancelled. */
export interface WrittenOutcomes {
  readonly updated: number;
  readonly deleted: number;
}

/** Writes failures, stamps and judgements in one command. */
export async function writeOutcomes(
  { jobs }: JobsCollections,
  operations: readonly Operation[],
): Promise<WrittenOutcomes> {
  const result = await jobs.bulkWrite([...operations], { ordered: false });
  return { updated: result.matchedCount, deleted: result.deletedCount };
}

/** What has become of rows, by id; those that are gone are missing. */
export async function findEnds(
  { jobs }: JobsCollections,
  rows: readonly Pick<JobDoc, '_id'>[],
): Promise<Map<string, Pick<JobDoc, 'status' | 'closed_at'>>> {
  const found = await jobs
    .find({ _id: { $in: rows.map(({ _id }) => _id) } }, { projection: { status: 1, closed_at: 1 } })
    .toArray();
  return new Map(found.map((row) => [row._id.toHexString(), row]));
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
