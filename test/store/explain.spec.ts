/**
 * The plan of every query of the engine, on a database that holds far more of everything than a query may look at
 * (invariant 10): the right index, no sort in memory, no more examined than twice what the batch may return. Where a query
 * reads a whole collection, that is one that does not grow with the rows, and its reason stands beside it.
 *
 * What a stand-in server cannot show: DocumentDB counts the index entries that a scan returned or threw away after a
 * look, not those it stepped over inside the index. The pages it touched (`pages`) tell of those.
 */
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import type { Connection } from 'mongoose';
import { connect, databaseName, dropAndClose } from '../../scripts/bench/database.js';
import { ENGINE_QUERIES } from '../../scripts/bench/engine_queries.js';
import { loadForPlans } from '../../scripts/bench/queries/loaded.js';
import { faultsOf, type Loaded } from '../../scripts/bench/queries/query.js';
import { plansOf } from '../../scripts/bench/query_plans.js';

// Where a query cannot name its index (`$unionWith` takes no hint), a planner without statistics of these fresh rows may
// guess wrong; it gathers them within a minute.
jest.retryTimes(6, { waitBeforeRetry: 15_000 });

/** More than five times the largest bound, so that a scan of one kind of rows shows. */
const ROWS = 3_000;
const LOAD_MS = 240_000;

let connection: Connection;
let loaded: Loaded;

beforeAll(async () => {
  connection = await connect(process.env['MONGO_URI']!, databaseName('explain_test'));
  loaded = await loadForPlans(connection, ROWS);
}, LOAD_MS);

afterAll(() => dropAndClose(connection));

describe('the plan of', () => {
  it.each(ENGINE_QUERIES.map((query) => [query.name, query] as const))('%s', async (_, query) => {
    const plans = await plansOf(connection, () => query.run(loaded));
    expect(plans.length).toBeGreaterThan(0);
    for (const plan of plans) expect({ ...plan, faults: faultsOf(query, plan) }).toEqual({ ...plan, faults: [] });
  });
});

describe('the reader of plans', () => {
  it('finds fault with a scan, a sort, a strange index and too much looking', () => {
    const query = { ...ENGINE_QUERIES[0]!, index: ['due_fast'], examined: 10 };
    const plan = { command: 'find', collection: 'jobs', indexes: ['due_fast'], stages: ['IXSCAN'], sorts: false };
    const counts = { keys: 10, documents: 10, returned: 10, pages: -1 };
    expect(faultsOf(query, { ...plan, ...counts })).toEqual([]);
    expect(faultsOf(query, { ...plan, ...counts, documents: 11 })).toHaveLength(1);
    expect(faultsOf(query, { ...plan, ...counts, keys: 21 })).toHaveLength(1);
    expect(faultsOf(query, { ...plan, ...counts, sorts: true })).toHaveLength(1);
    expect(faultsOf(query, { ...plan, ...counts, indexes: ['due_fast', 'admin'] })).toEqual(['index admin']);
    expect(faultsOf(query, { ...plan, ...counts, indexes: [], stages: ['COLLSCAN'] })).toHaveLength(2);
  });

  it('tells a scan of the whole collection, and a sort in memory', async () => {
    const [plan] = await plansOf(connection, () =>
      loaded.jobs.jobs.find({ 'payload.i': 7 }, { sort: { bytes: 1 }, limit: 1 }).toArray(),
    );
    expect(plan).toMatchObject({ indexes: [], sorts: true });
    expect(plan!.stages).toContain('COLLSCAN');
    expect(plan!.documents).toBeGreaterThan(ROWS);
  });

  it('tells a read that examines more than it returns', async () => {
    const filter = { target: 'explain:fast', status: 'PENDING', lane: 'fast', partition: 0, 'payload.i': -1 } as const;
    const [plan] = await plansOf(connection, () =>
      loaded.jobs.jobs.find(filter, { limit: 100, hint: 'in_order' }).toArray(),
    );
    expect(plan!.documents).toBeGreaterThan(2 * 100);
    expect(plan!.returned).toBe(0);
  });
});
