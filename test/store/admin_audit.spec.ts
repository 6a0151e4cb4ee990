/** The audit row stands or falls with its change, and the change with its audit row. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { AdminAudit } from '../../src/jobs/admin_audit.service.js';
import { inTransaction } from '../../src/common/utils/transaction.js';
import { JobsAdminModule } from '../../src/index.js';
import { JobsAdminService } from '../../src/jobs/admin/jobs_admin.service.js';
import { JobsBulkService } from '../../src/jobs/admin/jobs_bulk.service.js';
import { TargetStates } from '../../src/jobs/admin/target_states.service.js';
import type { AuditDoc } from '../../src/jobs/store/jobs.schema.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const database = new TestDatabase();
afterEach(() => database.reset());
afterAll(() => database.drop());

const TARGET = { name: 'orders:ship', lane: 'fast' as const, handler: async () => undefined };
const start = (): Promise<TestPod> => database.pod({}, [TARGET], new FakeClock(), { imports: [JobsAdminModule] });

async function deadRow(pod: TestPod): Promise<string> {
  await pod.sideEffect.enqueue('orders:ship', {});
  const row = (await pod.jobs.findOneAndUpdate(
    { status: 'PENDING' },
    { $set: { status: 'DEAD', closed_at: pod.now() } },
  ))!;
  return row._id.toHexString();
}

it('an abort leaves none', async () => {
  const pod = await start();
  const audit = pod.module.get(AdminAudit);
  const work = inTransaction(pod.connection, async (tx) => {
    await audit.record(tx, { actor: 'ada', action: 'job.skip', subject: 'x' });
    await audit.add(tx, audit.newId(), { actor: 'ada', action: 'jobs.skip', subject: 'y', count: 3 });
    throw new Error('changed my mind');
  });
  await expect(work).rejects.toThrow('changed my mind');
  expect(await pod.collections.audit.countDocuments()).toBe(0);
});

it('has when, who, what, how many and why', async () => {
  const pod = await start();
  const audit = pod.module.get(AdminAudit);
  const id = audit.newId();
  const change = { actor: 'ada', action: 'jobs.skip', subject: '{}', reason: 'obsolete' };
  await inTransaction(pod.connection, (tx) => audit.record(tx, { actor: 'bob', action: 'job.skip', subject: 'x' }));
  for (const count of [100, 20]) await inTransaction(pod.connection, (tx) => audit.add(tx, id, { ...change, count }));
  const rows = await pod.collections.audit.find({}, { projection: { _id: 0 }, sort: { actor: -1 } }).toArray();
  expect(rows).toEqual([
    { at: pod.now(), actor: 'bob', action: 'job.skip', subject: 'x', count: 1 },
    { at: pod.now(), ...change, count: 120 },
  ]);
});

describe('a change whose audit row cannot be written does not happen:', () => {
  const actor = 'ada';
  it.each<[name: string, act: (pod: TestPod, id: string) => Promise<unknown>]>([
    ['retry', (pod, id) => pod.module.get(JobsAdminService).retry({ id, actor })],
    ['skip', (pod, id) => pod.module.get(JobsAdminService).skip({ id, actor })],
    ['bulk retry', (pod, id) => pod.module.get(JobsBulkService).run('retry', { filter: { ids: [id] } }, actor)],
    ['bulk skip', (pod, id) => pod.module.get(JobsBulkService).run('skip', { filter: { ids: [id] } }, actor)],
    ['pause', (pod) => pod.module.get(TargetStates).pause({ target: 'orders:ship', actor, reason: 'r' })],
  ])('%s', async (_, act) => {
    const pod = await start();
    const id = await deadRow(pod);
    const before = await pod.jobs.find().toArray();
    pod.events.length = 0;
    // Every write of the audit collides with a row that stands already: a real refusal by the database.
    const blocker = await pod.collections.audit.createIndex({ actor: 1 }, { unique: true });
    await pod.collections.audit.insertOne({ actor } as AuditDoc);
    try {
      await expect(act(pod, id)).rejects.toThrow(/E11000|duplicate/i);
    } finally {
      await pod.collections.audit.dropIndex(blocker);
    }
    expect(await pod.jobs.find().toArray()).toEqual(before);
    expect(await pod.collections.targets.countDocuments()).toBe(0);
    expect(await pod.collections.partitions.countDocuments({ rev: { $gt: 0 } })).toBe(0);
    expect(pod.events).toEqual([]);
  });
});
