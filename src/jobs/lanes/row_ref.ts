/** What others see of a row: events and logs a few names, handlers the job. */
import type { RowRef } from '../jobs.events.js';
import type { Job } from '../jobs.types.js';
import type { JobDoc } from '../store/jobs.schema.js';

/** What events and logs may say of a row: never its payload. */
export function rowRef(row: JobDoc, attempts: number): RowRef {
  return { id: row._id.toHexString(), target: row.target, code: row.code, dedupe_key: row.dedupe_key, attempts };
}

export function toJob(row: JobDoc): Job {
  return {
    id: row._id.toHexString(),
    target: row.target,
    code: row.code,
    ...(row.key !== undefined && { key: row.key }),
    version: row.version,
    payload: row.payload,
    dedupe_key: row.dedupe_key,
    headers: row.headers ?? {},
    attempts: row.attempts,
    ...(row.retried_at !== undefined && { retried_at: row.retried_at }),
    ...(row.trace_id !== undefined && { trace_id: row.trace_id }),
    ...(row.traceparent !== undefined && { traceparent: row.traceparent }),
    ...(row.actor !== undefined && { actor: row.actor }),
    created_at: row.created_at,
  };
}
