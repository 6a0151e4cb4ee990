// Queries, aggregations and their plans.
import { beforeAll, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { describeGateway, failure } from './support/harness.js';

interface Row {
  _id: number;
  key: string;
  n: number;
  free: number;
}
interface Stage {
  stage: string;
  indexName?: string;
  inputStage?: Stage;
}
interface Plan {
  queryPlanner: { namespace: string; winningPlan: Stage };
  executionStats: { nReturned: number; totalKeysExamined: number; totalDocsExamined: number };
}

const stages = (plan: Stage | undefined): string[] => (plan ? [plan.stage, ...stages(plan.inputStage)] : []);
const indexOf = (plan: Stage | undefined): string | undefined => plan && (plan.indexName ?? indexOf(plan.inputStage));

describeGateway('reads', (harness) => {
  let rows: mongo.Collection<Row>;

  beforeAll(async () => {
    rows = harness.db.collection<Row>('rows');
    await rows.createIndex({ key: 1, n: 1 }, { name: 'key_n' });
    await rows.insertMany(
      Array.from({ length: 500 }, (_, _id) => ({ _id, key: `k${_id % 10}`, n: _id, free: _id % 7 })),
    );
    await harness.db.collection('names').insertMany([
      { key: 'k1', name: 'one' },
      { key: 'k2', name: 'two' },
    ]);
  });

  it('groups, facets and looks up', async () => {
    const groups = await rows.aggregate([{ $group: { _id: '$key', n: { $sum: 1 } } }, { $sort: { _id: 1 } }]).toArray();
    expect(groups.slice(0, 2)).toEqual([
      { _id: 'k0', n: 50 },
      { _id: 'k1', n: 50 },
    ]);
    const [facets] = await rows
      .aggregate<{ low: unknown[]; total: { n: number }[] }>([
        { $facet: { low: [{ $match: { n: { $lt: 3 } } }], total: [{ $count: 'n' }] } },
      ])
      .toArray();
    expect(facets?.low).toHaveLength(3);
    expect(facets?.total[0]?.n).toBe(500);
    const [joined] = await rows
      .aggregate<{ names: { name: string }[] }>([
        { $match: { _id: 1 } },
        { $lookup: { from: 'names', localField: 'key', foreignField: 'key', as: 'names' } },
      ])
      .toArray();
    expect(joined?.names[0]?.name).toBe('one');
  });

  it('counts and lists distinct values', async () => {
    expect(await rows.countDocuments({ key: 'k1' })).toBe(50);
    expect(await rows.estimatedDocumentCount()).toBe(500);
    expect((await rows.distinct('key', { n: { $lt: 3 } })).toSorted()).toEqual(['k0', 'k1', 'k2']);
  });

  it('explains an indexed, sorted and limited find as an index scan that stops at the limit', async () => {
    const plan = (await rows
      .find({ key: 'k3', n: { $gt: 0 } })
      .sort({ key: 1, n: 1 })
      .limit(5)
      .hint('key_n')
      .explain()) as unknown as Plan;
    expect(plan.queryPlanner.namespace).toBe(rows.namespace);
    expect(indexOf(plan.queryPlanner.winningPlan)).toBe('key_n');
    expect(stages(plan.queryPlanner.winningPlan)).toEqual(['LIMIT', 'FETCH', 'IXSCAN']);
    expect(plan.executionStats.nReturned).toBe(5);
    expect(plan.executionStats.totalDocsExamined).toBeLessThanOrEqual(6);
  });

  it('explains a find on _id as its index, and one without an index as a collection scan with a sort', async () => {
    const byId = (await rows.find({ _id: 3 }).explain()) as unknown as Plan;
    expect(indexOf(byId.queryPlanner.winningPlan)).toBe('_id_');
    expect(byId.executionStats).toMatchObject({ nReturned: 1, totalKeysExamined: 1, totalDocsExamined: 1 });
    const scan = (await rows.find({ free: 3 }).sort({ n: 1 }).explain()) as unknown as Plan;
    expect(stages(scan.queryPlanner.winningPlan)).toEqual(['SORT', 'COLLSCAN']);
    expect(scan.executionStats).toMatchObject({ totalKeysExamined: 0, totalDocsExamined: 500 });
  });

  it('explains aggregations, counts and the reading part of writes without writing', async () => {
    const explain = async (inner: Record<string, unknown>): Promise<Plan> =>
      (await harness.db.command({ explain: inner, verbosity: 'executionStats' })) as unknown as Plan;
    const q = { key: 'k3', n: { $gt: 400 } };
    const plans = await Promise.all([
      explain({ aggregate: 'rows', pipeline: [{ $match: q }, { $group: { _id: '$n' } }], cursor: {} }),
      explain({ count: 'rows', query: q }),
      explain({ update: 'rows', updates: [{ q, u: { $set: { free: -1 } }, multi: true }] }),
      explain({ delete: 'rows', deletes: [{ q, limit: 1 }] }),
      explain({ findAndModify: 'rows', query: q, sort: { key: 1, n: 1 }, update: { $set: { free: -1 } } }),
    ]);
    for (const { queryPlanner } of plans) expect(indexOf(queryPlanner.winningPlan)).toBe('key_n');
    expect(await rows.countDocuments({ free: -1 })).toBe(0);
    expect(plans[2]?.executionStats.nReturned).toBe(10);
  });

  it('an unknown command, operator or index is told as MongoDB tells it', async () => {
    expect(await failure(harness.db.command({ nonsense: 1 }))).toMatchObject({ code: 59, codeName: 'CommandNotFound' });
    expect(await failure(rows.find({ n: { $nonsense: 1 } } as never).toArray())).toMatchObject({ code: 2 });
    expect(await failure(rows.find({}).hint('nonsense').toArray())).toMatchObject({ code: 2 });
  });

  it('hello tells the time of a real clock and a connection id of its own for each socket', async () => {
    const [hello, other] = await Promise.all([
      harness.db.admin().command({ hello: 1 }),
      (await harness.connect()).db('admin').command({ hello: 1 }),
    ]);
    expect(Math.abs((hello.localTime as Date).getTime() - Date.now())).toBeLessThan(1_000);
    expect(hello.connectionId).not.toBe(other.connectionId);
  });
});
