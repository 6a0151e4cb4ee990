/**
 * Writes new rows, in the caller's transaction or on its own.
 *
 * Who else may write these rows? Another enqueue of the same `dedupe_key`, at the same moment. The unique index
 * `dedupe` decides; the loser is told "not inserted", never an error:
 * - outside a transaction the duplicate is refused by the index and read from the answer (one round trip);
 * - inside one, a refused insert would abort the caller's transaction, so known keys are filtered first (two round
 *   trips), and a key that appeared after the snapshot makes the driver run the caller's callback again: MongoDB
 *   answers with a write conflict, DocumentDB with a duplicate key, which is labelled transient here.
 */
import type { ClientSession } from 'mongoose';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';
import { isDuplicateKey, labelTransient, writeErrorsOf } from './write_errors.js';

/** Per row, in order: true when this call inserted it. */
export type Inserted = boolean[];

export async function insertInTransaction(
  { jobs }: JobsCollections,
  rows: JobDoc[],
  givenKeys: readonly string[],
  session: ClientSession,
): Promise<Inserted> {
  try {
    const known = new Set<string>();
    if (givenKeys.length > 0) {
      const found = jobs.find(
        { dedupe_key: { $in: [...givenKeys] } },
        { session, projection: { _id: 0, dedupe_key: 1 } },
      );
      for await (const row of found) known.add(row.dedupe_key);
    }
    const fresh = rows.filter((row) => !known.has(row.dedupe_key));
    if (fresh.length > 0) await jobs.insertMany(fresh, { session });
    return rows.map((row) => !known.has(row.dedupe_key));
  } catch (error) {
    if (isDuplicateKey(error)) labelTransient(error);
    throw error;
  }
}

export async function insertAlone({ jobs }: JobsCollections, rows: JobDoc[]): Promise<Inserted> {
  try {
    // Unordered: a duplicate must not keep the rows behind it from being written.
    await jobs.insertMany(rows, { ordered: false });
    return rows.map(() => true);
  } catch (error) {
    if (!isDuplicateKey(error, 'dedupe')) throw error;
    const refused = new Set(writeErrorsOf(error).map((fault) => fault.index));
    return rows.map((_, index) => !refused.has(index));
  }
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
