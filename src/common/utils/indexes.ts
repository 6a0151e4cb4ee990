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
  const faults = faultsOf(specs, await collection.listIndexes().toArray());
  if (faults.length === 0) return;
  throw new BootError(
    'index_conflict',
    `${collection.collectionName}: ${faults.join('; ')}. Drop it (or what stands in its place) and start again.`,
  );
}

/** Causes before consequences: one index that conflicts keeps all of them from being created. */
function faultsOf(specs: readonly IndexSpec[], present: readonly Record<string, unknown>[]): string[] {
  const named = (spec: IndexSpec) => present.find((index) => index['name'] === spec.name);
  const causes = specs.flatMap((spec) => {
    const found = named(spec);
    const inItsPlace = present.find((index) => JSON.stringify(index['key']) === JSON.stringify(spec.key));
    const taken = inItsPlace && `its keys are taken by index ${String(inItsPlace['name'])}`;
    const fault = found ? differenceOf(spec, found) : taken;
    return fault ? [`index ${spec.name}: ${fault}`] : [];
  });
  if (causes.length > 0) return causes;
  return specs.filter((spec) => !named(spec)).map((spec) => `index ${spec.name}: it is missing`);
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
