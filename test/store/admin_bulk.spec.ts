/** A slice of a bulk action is read outside of its transaction: what changed since is left alone. */
import { afterAll, expect, it } from '@jest/globals';
import { inTransaction } from '../../src/common/utils/transaction.js';
import { readSlice, removeSlice, reviveSlice } from '../../src/jobs/store/admin_bulk.store.js';
import { TestDatabase } from '../support/pod.js';

const database = new TestDatabase();
afterAll(() => database.drop());

it.each(['retry', 'skip'])('%s leaves rows alone that are not DEAD any more', async (action) => {
  const pod = await database.pod({}, [{ name: 'a:a', lane: 'fast', handler: async () => undefined }]);
  for (let row = 0; row < 3; row++) await pod.sideEffect.enqueue('a:a', {});
  await pod.jobs.updateMany({}, { $set: { status: 'DEAD', attempts: 6, closed_at: pod.now() } });
  const ids = (await readSlice(pod.collections, { target: 'a:a' }, { limit: 10, look: 10 })).rows.map((row) => row._id);
  expect(ids).toHaveLength(3);

  await pod.jobs.updateOne({ _id: ids[0]! }, { $set: { status: 'PENDING', attempts: 2 } });
  await pod.jobs.updateOne({ _id: ids[1]! }, { $set: { status: 'RUNNING', attempts: 2 } });
  const changed = await inTransaction(pod.connection, async ({ session }) =>
    action === 'skip'
      ? (await removeSlice(session, pod.collections, ids)).length
      : reviveSlice(session, pod.collections, ids, pod.now()),
  );
  expect(changed).toBe(1);
  const left = await pod.jobs.find({ _id: { $in: ids.slice(0, 2) } }, { sort: { _id: 1 } }).toArray();
  expect(left).toMatchObject([
    { status: 'PENDING', attempts: 2 },
    { status: 'RUNNING', attempts: 2 },
  ]);
  await database.reset();
});
