/**
 * No query of the engine without its plan in `explain.spec.ts`: every function of every store is either asked for its plans
 * or listed with the reason why it has none, and nothing but stores talks to collections.
 */
import { describe, expect, it } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ENGINE_QUERIES, WITHOUT_A_PLAN } from '../../scripts/bench/engine_queries.js';
import type { StoreFunction } from '../../scripts/bench/queries/query.js';

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url));
/** A host's own queries are not the engine's. */
const files = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
  .map((name) => name.replaceAll('\\', '/'))
  .filter((name) => name.endsWith('.ts') && !name.startsWith('examples/'));

const COMMAND =
  /\b(jobs|partitions|workers|meta|counters|targets|audit|rateLimits|schedules|collection)\s*\.(find|findOne|aggregate|distinct|countDocuments|estimatedDocumentCount|bulkWrite|(find|find_?one)?(AndUpdate|AndDelete|AndReplace)|(insert|update|delete|replace)(One|Many))\(\s*[[{]/i;

async function storeFunctions(): Promise<Map<StoreFunction, string>> {
  const functions = new Map<StoreFunction, string>();
  for (const file of files.filter((name) => name.endsWith('.store.ts'))) {
    const exported = (await import(join(SOURCES, file))) as Record<string, unknown>;
    for (const [name, value] of Object.entries(exported)) {
      if (typeof value === 'function') functions.set(value as StoreFunction, `${file} ${name}`);
    }
  }
  return functions;
}

describe('the queries whose plans are asserted', () => {
  it('are those of all store functions, but for the listed ones', async () => {
    const functions = await storeFunctions();
    expect(functions.size).toBeGreaterThan(80);
    const known = new Set<StoreFunction>([...ENGINE_QUERIES.map(({ of }) => of), ...WITHOUT_A_PLAN.keys()]);
    const missing = [...functions].filter(([each]) => !known.has(each)).map(([, name]) => name);
    expect(missing).toEqual([]);
  });

  it('list no function that is asked for its plan, and none that is no store function', async () => {
    const functions = await storeFunctions();
    const asked = new Set(ENGINE_QUERIES.map(({ of }) => of));
    for (const [listed, reason] of WITHOUT_A_PLAN) {
      expect(asked.has(listed)).toBe(false);
      expect(functions.has(listed)).toBe(true);
      expect(reason).not.toBe('');
    }
    for (const { of, name } of ENGINE_QUERIES) expect([name, functions.has(of)]).toEqual([name, true]);
  });

  it('have names of their own', () => {
    const names = ENGINE_QUERIES.map(({ name }) => name);
    expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  });

  it('are all there are: nothing but stores sends commands', () => {
    const others = files.filter((name) => !name.endsWith('.store.ts'));
    expect(others.filter((name) => COMMAND.test(readFileSync(join(SOURCES, name), 'utf8')))).toEqual([]);
    expect(COMMAND.test('await this.collections.jobs.updateOne({ _id }, {})')).toBe(true);
    expect(COMMAND.test("db.collection('jobs').find({})")).toBe(false);
  });
});
