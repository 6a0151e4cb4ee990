/**
 * Prepares the database at boot: indexes, partition rows, the partition count. Safe to run from any number of pods at
 * once.
 */
import { BootError } from '../../common/errors.js';
import { createIndexes } from '../../common/utils/indexes.js';
import type { JobsCollections } from './collections.js';
import { JOB_INDEXES, PARTITION_INDEXES, RATE_LIMIT_INDEXES, WORKER_INDEXES } from './jobs.schema.js';
import { isDuplicateKey } from './write_errors.js';

export async function ensureIndexes(collections: JobsCollections): Promise<void> {
  await createIndexes(collections.jobs, JOB_INDEXES);
  await createIndexes(collections.partitions, PARTITION_INDEXES);
  await createIndexes(collections.workers, WORKER_INDEXES);
  await createIndexes(collections.rateLimits, RATE_LIMIT_INDEXES);
  await collections.createBare();
}

/** The partition count is a fact of the database: rows are hashed with it, so no pod may read it differently. */
export async function agreeOnPartitions({ meta }: JobsCollections, partitions: number): Promise<void> {
  const filter = { _id: 'engine' };
  const update = { $setOnInsert: { partitions } };
  const options = { upsert: true, returnDocument: 'after' } as const;
  const agreed = await meta.findOneAndUpdate(filter, update, options).catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error; // two pods at an empty database: one inserts, the other reads
    return meta.findOne(filter);
  });
  if (agreed?.partitions !== partitions) {
    throw new BootError(
      'partition_count',
      `jobs.partitions: this database was set up with ${agreed?.partitions} partitions, this pod is configured with ${partitions}`,
      'jobs.partitions',
    );
  }
}

export async function seedPartitions({ partitions }: JobsCollections, count: number): Promise<void> {
  if ((await partitions.countDocuments()) >= count) return;
  const upserts = Array.from({ length: count }, (_, partition) => ({
    updateOne: {
      filter: { partition },
      update: { $setOnInsert: { owner: null, lease_until: null, inflight: [], rev: 0 } },
      upsert: true,
    },
  }));
  try {
    await partitions.bulkWrite(upserts, { ordered: false });
  } catch (error) {
    if (!isDuplicateKey(error)) throw error; // another pod seeded the same row between our look and our insert
  }
}
