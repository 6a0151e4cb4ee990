/**
 * The plan of every query of the engine's loops, on a collection that holds far more of everything than a query may look
 * at (invariant 10): the right index, no sort in memory, no more examined than twice what the batch may return.
 *
 * What a stand-in server cannot show: DocumentDB counts the index entries that a scan returned or threw away after a
 * look, not those it stepped over inside the index. The pages it touched (`pages`) tell of those.
 */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { Connection } from 'mongoose';
import { connect, databaseName, dropAndClose } from '../../scripts/bench/database.js';
import { ENGINE_QUERIES, loadForPlans, type Loaded } from '../../scripts/bench/engine_queries.js';
import { plansOf } from '../../scripts/bench/query_plans.js';
import { ensureIndexes } from '../../src/jobs/store/boot.store.js';
import { openCollections, type JobsCollections } from '../../src/jobs/store/collections.js';

/** More than five times the largest bound, so that a scan of one kind of rows shows. */
const ROWS = 3_000;
const LOAD_MS = 240_000;

let connection: Connection;
let collections: JobsCollections;
let loaded: Loaded;

beforeAll(async () => {
  connection = await connect(process.env['MONGO_URI']!, databaseName('explain_test'));
  collections = await openCollections(connection);
  await ensureIndexes(collections);
  loaded = await loadForPlans(collections, ROWS);
}, LOAD_MS);

afterAll(() => dropAndClose(connection));

describe('the plan of', () => {
  it.each(ENGINE_QUERIES)('$name', async ({ index, examined, run }) => {
    const plans = await plansOf(connection, () => run(collections, loaded));
    expect(plans.length).toBeGreaterThan(0);
    for (const plan of plans) {
      expect(plan.stages).not.toContain('COLLSCAN');
      expect(plan.indexes).toHaveLength(1);
      expect(index).toContain(plan.indexes[0]);
      expect(plan.sorts).toBe(false);
      expect(plan.keys).toBeLessThanOrEqual(examined);
      expect(plan.documents).toBeLessThanOrEqual(examined);
    }
  });
});

describe('the reader of plans', () => {
  it('tells a scan of the whole collection, and a sort in memory', async () => {
    const [plan] = await plansOf(connection, () =>
      collections.jobs.find({ 'payload.i': 7 }, { sort: { bytes: 1 }, limit: 1 }).toArray(),
    );
    expect(plan).toMatchObject({ indexes: [], sorts: true });
    expect(plan!.stages).toContain('COLLSCAN');
    expect(plan!.documents).toBeGreaterThan(ROWS);
  });

  it('tells a read that examines more than it returns', async () => {
    const { jobs } = collections;
    const filter = { target: 'explain:fast', status: 'PENDING', lane: 'fast', partition: 0, 'payload.i': -1 } as const;
    const [plan] = await plansOf(connection, () => jobs.find(filter, { limit: 100, hint: 'in_order' }).toArray());
    expect(plan!.documents).toBeGreaterThan(2 * 100);
    expect(plan!.returned).toBe(0);
  });
});
