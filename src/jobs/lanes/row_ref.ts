import type { RowRef } from '../jobs.events.js';
import type { JobDoc } from '../store/jobs.schema.js';

/** What events and logs may say of a row: never its payload. */
export function rowRef(row: JobDoc, attempts: number): RowRef {
  return { id: row._id.toHexString(), target: row.target, code: row.code, dedupe_key: row.dedupe_key, attempts };
}
