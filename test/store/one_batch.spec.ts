import { afterAll, describe, expect, it } from '@jest/globals';
import { readDue } from '../../src/jobs/store/long_lane.store.js';
import { findCellsWithWork, probeDueKeys, readOrdered } from '../../src/jobs/store/fast_lane.store.js';
import { TestDatabase } from '../support/pod.js';

/** A server's default first batch is 101 rows: a read whose limit is higher must not end there. */
describe('a read of more rows than a default batch holds', () => {
  const db = new TestDatabase();
  afterAll(() => db.drop());

  it('answers as many as its limit', async () => {
    const handler = async (): Promise<void> => undefined;
    const targets = [
      { name: 'a:fast', lane: 'fast', handler },
      { name: 'a:long', lane: 'long', handler },
    ] as const;
    const pod = await db.pod({ partitions: 1 }, [...targets]);
    const rows = Array.from({ length: 300 }, (_, index) => index);
    await pod.sideEffect.enqueueMany(rows.map((index) => ({ target: 'a:fast', payload: index, key: `k${index}` })));
    await pod.sideEffect.enqueueMany(rows.map((index) => ({ target: 'a:long', payload: index })));
    const now = pod.now();
    const cell = { target: 'a:fast', partition: 0 };
    const group = { targets: ['a:fast'], partitions: [0] };
    expect(await findCellsWithWork(pod.collections, group, now, 250)).toEqual({ found: [cell], full: true });
    expect(await findCellsWithWork(pod.collections, group, now, 301)).toEqual({ found: [cell], full: false });
    expect(await probeDueKeys(pod.collections, cell, now, 250)).toHaveLength(250);
    expect(await readOrdered(pod.collections, cell, { after: '' }, 250)).toHaveLength(250);
    expect(await readDue(pod.collections, { target: 'a:long', busy: [], now, limit: 250 })).toHaveLength(250);
  });
});
