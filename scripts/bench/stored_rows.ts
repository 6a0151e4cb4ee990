// Rows as the engine stores them, made without it: for collections of a million rows, loaded as fast as the server takes
// them.
import { mongo } from 'mongoose';
import { randomUUID } from 'node:crypto';
import type { JobsCollections } from '../../src/jobs/store/collections.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';

const CHUNK = 1_000;
const LOADERS = 2;

export function storedRow(target: string, i: number, fields: Partial<JobDoc> = {}): JobDoc {
  const now = new Date();
  const key = fields.order_key ?? `k${i}`;
  return {
    _id: new mongo.ObjectId(),
    code: target,
    target,
    lane: 'fast',
    key,
    order_key: key,
    partition: 0,
    version: 0,
    payload: { i },
    dedupe_key: randomUUID(),
    status: 'PENDING',
    attempts: 0,
    crashes: 0,
    priority: 2,
    run_at: now,
    next_run_at: now,
    bytes: 500,
    created_at: now,
    updated_at: now,
    ...fields,
  };
}

/** Inserts `count` rows that `make` builds. */
export async function load({ jobs }: JobsCollections, count: number, make: (i: number) => JobDoc): Promise<void> {
  let next = 0;
  const loader = async (): Promise<void> => {
    while (next < count) {
      const from = next;
      next += CHUNK;
      const size = Math.min(CHUNK, count - from);
      await jobs.insertMany(
        Array.from({ length: size }, (_, i) => make(from + i)),
        { ordered: false },
      );
    }
  };
  await Promise.all(Array.from({ length: LOADERS }, loader));
}
