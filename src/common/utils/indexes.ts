/**
 * Creates indexes at boot and makes sure of them: an index that is not there guards nothing, so each is read back and
 * compared before anything may rely on it. Safe to run from any number of pods at once.
 */
import type { mongo } from 'mongoose';
import { BootError } from '../errors.js';
import { isDuplicateKey } from './write_errors.js';

export interface IndexSpec extends mongo.IndexDescription {
  name: string;
}

interface IndexedCollection {
  readonly collectionName: string;
  createIndexes(specs: IndexSpec[]): Promise<string[]>;
  listIndexes(): { toArray(): Promise<Record<string, unknown>[]> };
}

/** Throws `index_duplicates` or `index_conflict`, in words that say what to do. */
export async function createIndexes(collection: IndexedCollection, specs: readonly IndexSpec[]): Promise<void> {
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
