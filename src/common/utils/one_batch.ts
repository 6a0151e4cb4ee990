/**
 * Options of a read that wants all of its rows in one answer. With `singleBatch` alone a server answers at most its
 * default first batch, 101 rows, whatever the limit says, and the rest looks as if it were not there.
 */
export function oneBatch(limit: number): { limit: number; batchSize: number; singleBatch: true } {
  return { limit, batchSize: limit, singleBatch: true };
}
