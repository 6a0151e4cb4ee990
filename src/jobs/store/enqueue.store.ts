/**
 * Writes new rows, in the caller's transaction or on its own.
 *
 * Who else may write these rows? Another enqueue of the same `dedupe_key`, at the same moment. The unique index
 * `dedupe_given` decides; the loser is told "not inserted", never an error:
 * - outside a transaction the duplicate is refused by the index and read from the answer (one round trip);
 * - inside one, a refused insert would abort the caller's transaction, so a row is inserted only where its key is not
 *   known: one row by an upsert (one round trip), several behind a look for all their keys (two). A key that is there
 *   all the same (it appeared after the snapshot, or nobody looked) makes the driver run the caller's callback again:
 *   a write conflict does so by itself, a duplicate key is labelled transient here.
 */
import type { ClientSession, mongo } from 'mongoose';
import { TransactionEndedError } from '../../common/errors.js';
import { attemptOf } from '../../common/utils/session_hooks.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';
import { isDuplicateKey, labelTransient, writeErrorsOf } from './write_errors.js';

type Jobs = JobsCollections['jobs'];

/** Per row, in order: true when this call inserted it. */
export type Inserted = boolean[];

/** The condition of the index `dedupe_given`; a query must repeat it, or it reads the whole collection. */
const GIVEN = { generated_key: null } as unknown as mongo.Filter<JobDoc>;

/** `look`: without it none of several rows may have a known key, or the transaction's attempt is lost. */
export async function insertInTransaction(
  { jobs }: JobsCollections,
  rows: JobDoc[],
  givenKeys: readonly string[],
  session: ClientSession,
  look = true,
): Promise<Inserted> {
  try {
    if (rows.length > 1 && !look) await insert(jobs, rows, { session });
    else if (givenKeys.length === 0) await insert(jobs, rows, { session });
    else if (rows.length === 1) return [await upsert(jobs, rows[0]!, session)];
    else return await insertUnknown(jobs, rows, givenKeys, session);
    return rows.map(() => true);
  } catch (error) {
    if (isDuplicateKey(error)) labelTransient(error);
    throw error;
  }
}

export async function insertAlone({ jobs }: JobsCollections, rows: JobDoc[]): Promise<Inserted> {
  try {
    // Unordered: a duplicate must not keep the rows behind it from being written.
    await insert(jobs, rows, { ordered: false });
    return rows.map(() => true);
  } catch (error) {
    // `dedupe` is the index of older versions, over all keys: it may still be there.
    if (!isDuplicateKey(error, 'dedupe')) throw error;
    if (rows.length === 1) return [false];
    const refused = new Set(writeErrorsOf(error).map((fault) => fault.index));
    return rows.map((_, index) => !refused.has(index));
  }
}

/** One row without the machinery of a batch: half of what the driver does for a command. */
async function insert(jobs: Jobs, rows: JobDoc[], options: mongo.BulkWriteOptions): Promise<void> {
  if (rows.length === 1) await jobs.insertOne(rows[0]!, options);
  else await jobs.insertMany(rows, options);
}

/** Inserts the row unless its key is known; a row that is there stays as it is. */
async function upsert(jobs: Jobs, row: JobDoc, session: ClientSession): Promise<boolean> {
  const { dedupe_key, ...others } = row;
  const result = await jobs.updateOne(
    { dedupe_key, ...GIVEN },
    // An upsert would take the filter's `null` into the new row.
    { $setOnInsert: others, $unset: { generated_key: '' } },
    { session, upsert: true },
  );
  return result.upsertedCount === 1;
}

async function insertUnknown(
  jobs: Jobs,
  rows: JobDoc[],
  givenKeys: readonly string[],
  session: ClientSession,
): Promise<Inserted> {
  const attempt = attemptOf(session);
  const found = await jobs
    .find({ dedupe_key: { $in: [...givenKeys] }, ...GIVEN }, { session, projection: { _id: 0, dedupe_key: 1 } })
    .toArray();
  const known = new Set(found.map((row) => row.dedupe_key));
  // Whoever owns a foreign transaction may have ended it meanwhile: an insert would be a write of its own.
  if (!attempt || attemptOf(session) !== attempt) throw new TransactionEndedError();
  const fresh = rows.filter((row) => !known.has(row.dedupe_key));
  if (fresh.length > 0) await insert(jobs, fresh, { session });
  return rows.map((row) => !known.has(row.dedupe_key));
}

/** Next number of a counter, in the caller's transaction: commit order is number order. */
export async function bumpCounter({ counters }: JobsCollections, key: string, session: ClientSession): Promise<number> {
  try {
    const counter = await counters.findOneAndUpdate(
      { _id: key },
      { $inc: { seq: 1 } },
      { session, upsert: true, returnDocument: 'after' },
    );
    return counter!.seq;
  } catch (error) {
    if (isDuplicateKey(error)) labelTransient(error); // two first bumps at once
    throw error;
  }
}
