// Results longer than a batch: wherever PostgreSQL keeps them, a client reads them to the end, and leaves nothing behind.
import { beforeAll, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { describeGateway, failure, until } from './support/harness.js';
import { newSession, RawClient } from './support/raw_client.js';

interface Row {
  _id: number;
  group: number;
  text: string;
}

describeGateway('cursors', (harness) => {
  let rows: mongo.Collection<Row>;
  const COUNT = 1_000;

  beforeAll(async () => {
    rows = harness.db.collection<Row>('rows');
    await rows.insertMany(
      Array.from({ length: COUNT }, (_, _id) => ({ _id, group: (_id * 7) % 10, text: 'x'.repeat(100) })),
    );
  });

  it('a result over many batches comes whole, unsorted and sorted', async () => {
    const all = await rows.find({}, { batchSize: 17 }).toArray();
    expect(new Set(all.map(({ _id }) => _id)).size).toBe(COUNT);
    const sorted = await rows.find({}, { batchSize: 33 }).sort({ group: -1, _id: 1 }).toArray();
    expect(sorted.map(({ _id }) => _id)).toEqual(
      all.toSorted((a, b) => b.group - a.group || a._id - b._id).map(({ _id }) => _id),
    );
  });

  it('an aggregation over many batches comes whole', async () => {
    const found = await rows
      .aggregate([{ $sort: { group: 1, _id: -1 } }, { $project: { group: 1 } }], { batchSize: 50 })
      .toArray();
    expect(found.length).toBe(COUNT);
    expect(found[0]).toMatchObject({ group: 0 });
  });

  it('cursors read inside a transaction see its snapshot and end with it', async () => {
    await harness.client.withSession(async (session) => {
      session.startTransaction();
      const cursor = rows.find({}, { session, batchSize: 10 }).sort({ group: 1, _id: 1 });
      await cursor.next();
      await rows.updateMany({}, { $set: { text: 'changed' } });
      const rest = await cursor.toArray();
      expect(rest.length).toBe(COUNT - 1);
      expect(rest.every(({ text }) => text !== 'changed')).toBe(true);
      await session.commitTransaction();
    });
  });

  it('a cursor of a transaction is gone after its commit', async () => {
    const client = await RawClient.connect(harness.gateway.port);
    const of = { ...newSession().numbered(1), autocommit: false, $db: harness.db.databaseName };
    const first = await client.command({
      find: 'rows',
      sort: { group: 1 },
      batchSize: 10,
      ...of,
      startTransaction: true,
    });
    const { id } = first.cursor as { id: unknown };
    await client.command({ commitTransaction: 1, ...of, $db: 'admin' });
    expect(await client.command({ getMore: id, collection: 'rows', $db: harness.db.databaseName })).toMatchObject({
      code: 43,
      codeName: 'CursorNotFound',
    });
    client.close();
  });

  it('sorted cursors that are closed half-way give their connections back', async () => {
    for (let round = 0; round < 5; round++) {
      const cursors = Array.from({ length: 20 }, () => rows.find({}, { batchSize: 10 }).sort({ group: 1, _id: 1 }));
      await Promise.all(cursors.map((cursor) => cursor.next()));
      await Promise.all(cursors.map((cursor) => cursor.close()));
    }
    expect(await rows.countDocuments()).toBe(COUNT); // 100 cursors, 40 connections
  });

  it('a client that goes away closes its cursors', async () => {
    const client = await RawClient.connect(harness.gateway.port);
    const first = await client.command({
      find: 'rows',
      sort: { group: 1 },
      batchSize: 10,
      $db: harness.db.databaseName,
    });
    const { id } = first.cursor as { id: unknown };
    client.close();
    await client.closed;
    const error = async () => (await failure(harness.db.command({ getMore: id, collection: 'rows' }))).code;
    await until(async () => (await error()) === 43, 'the cursor is closed');
  });

  it('a killed cursor is not found, and one that never was is said so', async () => {
    const cursor = rows.find({}, { batchSize: 10 });
    await cursor.next();
    const id = cursor.id!;
    const killed = await harness.db.command({ killCursors: 'rows', cursors: [id, id.add(5)] }, { promoteLongs: false });
    expect(killed).toMatchObject({ cursorsKilled: [id], cursorsNotFound: [id.add(5)] });
    expect(await failure(cursor.toArray())).toMatchObject({ code: 43 });
  });
});
