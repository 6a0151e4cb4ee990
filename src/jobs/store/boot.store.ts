/**
 * Prepares the database at boot: indexes, partition rows, the partition count. Safe to run from any number of pods at
 * once. An index that is not there guards nothing, so each is read back and compared before a lane may start.
 */
import { BootError } from '../../common/errors.js';
import type { JobsCollections } from './collections.js';
import { JOB_INDEXES, PARTITION_INDEXES, WORKER_INDEXES, type IndexSpec } from './jobs.schema.js';
import { isDuplicateKey } from './write_errors.js';

interface IndexedCollection {
  readonly collectionName: string;
  createIndexes(specs: IndexSpec[]): Promise<string[]>;
  listIndexes(): { toArray(): Promise<Record<string, unknown>[]> };
}

export async function ensureIndexes(collections: JobsCollections): Promise<void> {
  await ensure(collections.jobs, JOB_INDEXES);
  await ensure(collections.partitions, PARTITION_INDEXES);
  await ensure(collections.workers, WORKER_INDEXES);
  await collections.createBare();
}

async function ensure(collection: IndexedCollection, specs: readonly IndexSpec[]): Promise<void> {
  try {
    await collection.createIndexes([...specs]);
  } catch (error) {
    if (isDuplicateKey(error)) {
      throw new BootError(
        'index_duplicates',
        `${collection.collectionName}: rows that are already there break a unique index: ${(error as Error).message}`,
        undefined,
        { cause: error },
      );
    }
    if (!isIndexConflict(error)) throw error;
    // An index of that name or those keys exists with other options: the comparison below says which.
  }
  const present = await collection.listIndexes().toArray();
  for (const spec of specs) {
    const found = present.find((index) => index['name'] === spec.name);
    const difference = found ? differenceOf(spec, found) : 'it is missing';
    if (difference) {
      throw new BootError(
        'index_conflict',
        `${collection.collectionName}: index ${spec.name}: ${difference}. Drop it (or what stands in its place) and start again.`,
      );
    }
  }
}

function isIndexConflict(error: unknown): boolean {
  const code = (error as { code?: unknown }).code;
  return code === 85 || code === 86; // IndexOptionsConflict, IndexKeySpecsConflict
}

function differenceOf(spec: IndexSpec, found: Record<string, unknown>): string | undefined {
  const wanted = [
    ['key', spec.key],
    ['unique', spec.unique ?? false],
    ['partialFilterExpression', spec.partialFilterExpression ?? null],
    ['expireAfterSeconds', spec.expireAfterSeconds ?? null],
  ] as const;
  for (const [name, value] of wanted) {
    const actual = found[name] ?? (name === 'unique' ? false : null);
    if (JSON.stringify(actual) !== JSON.stringify(value)) {
      return `${name} is ${JSON.stringify(actual)}, expected ${JSON.stringify(value)}`;
    }
  }
  return undefined;
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
