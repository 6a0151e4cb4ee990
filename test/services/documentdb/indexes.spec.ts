// Indexes, collections and databases: built before the answer, by whoever asks first, and gone when dropped.
import { expect, it } from '@jest/globals';
import { describeGateway, failure } from './support/harness.js';

interface Row {
  _id: number;
  key?: string | number;
  state?: string;
  at?: Date;
}

describeGateway('indexes', (harness) => {
  const collection = (name: string) => harness.db.collection<Row>(name);

  it('a unique index refuses the second, one partial by type or equality only where its filter holds', async () => {
    const rows = collection('unique');
    await rows.createIndexes([
      { key: { key: 1 }, name: 'by_type', unique: true, partialFilterExpression: { key: { $type: 'string' } } },
      { key: { state: 1 }, name: 'by_value', unique: true, partialFilterExpression: { state: 'RUNNING' } },
    ]);
    await rows.insertMany([
      { _id: 1, key: 5, state: 'IDLE' },
      { _id: 2, key: 5, state: 'IDLE' },
      { _id: 3, key: 'a', state: 'RUNNING' },
    ]);
    expect((await failure(rows.insertOne({ _id: 4, key: 'a' }))).message).toContain('index: by_type');
    expect((await failure(rows.updateOne({ _id: 1 }, { $set: { state: 'RUNNING' } }))).message).toContain(
      'index: by_value',
    );
    await rows.updateOne({ _id: 3 }, { $set: { state: 'IDLE' } });
    await rows.updateOne({ _id: 1 }, { $set: { state: 'RUNNING' } });
  });

  it('the same index again is fine, with other options it is 86, under another name 85', async () => {
    const rows = collection('options');
    await rows.createIndex({ key: 1 }, { name: 'k', unique: true });
    expect(await rows.createIndex({ key: 1 }, { name: 'k', unique: true })).toBe('k');
    expect(await failure(rows.createIndex({ key: 1 }, { name: 'k' }))).toMatchObject({
      code: 86,
      codeName: 'IndexKeySpecsConflict',
    });
    expect(await failure(rows.createIndex({ key: 1 }, { name: 'other', unique: true }))).toMatchObject({
      code: 85,
      codeName: 'IndexOptionsConflict',
    });
  });

  it('a unique index over duplicates is refused with 11000 and leaves no index', async () => {
    const rows = collection('duplicates');
    await rows.insertMany([
      { _id: 1, key: 'a' },
      { _id: 2, key: 'a' },
    ]);
    const error = await failure(rows.createIndex({ key: 1 }, { name: 'k', unique: true }));
    expect(error).toMatchObject({ code: 11000 });
    expect(error.message).toContain('index: k');
    expect((await rows.indexes()).map(({ name }) => name)).toEqual(['_id_']);
  });

  it('listed indexes have the options they were made with, and no others', async () => {
    const rows = collection('listed');
    const options = { name: 'k', unique: true, partialFilterExpression: { key: { $type: 'string' } } };
    await rows.createIndex({ key: 1, at: -1 }, options);
    const [, listed] = await rows.indexes();
    expect(listed).toEqual({ v: 2, key: { key: 1, at: -1 }, ...options });
    await rows.dropIndex('k');
    expect(await rows.indexes()).toHaveLength(1);
    expect(await failure(rows.dropIndex('k'))).toMatchObject({ code: 27, codeName: 'IndexNotFound' });
  });

  it('eight clients that build the same indexes of an empty database at once all succeed', async () => {
    const clients = await Promise.all(Array.from({ length: 8 }, () => harness.connect()));
    await Promise.all(
      clients.map(async (client) => {
        const db = client.db(`${harness.db.databaseName}_built`);
        await Promise.all(
          ['jobs', 'leases', 'pauses'].map((name) =>
            db.collection(name).createIndexes([
              { key: { key: 1 }, name: 'dedupe', unique: true },
              { key: { state: 1, at: 1 }, name: 'due' },
            ]),
          ),
        );
        await db.collection<Row>('jobs').findOne({ key: 'none' });
      }),
    );
    const built = harness.client.db(`${harness.db.databaseName}_built`);
    expect((await built.collection('jobs').indexes()).map(({ name }) => name)).toEqual(['_id_', 'dedupe', 'due']);
    await built.dropDatabase();
    expect(await built.listCollections().toArray()).toEqual([]);
  });

  it('eight clients that create a collection by inserting at once all succeed', async () => {
    const clients = await Promise.all(Array.from({ length: 8 }, () => harness.connect()));
    await Promise.all(clients.map((client, _id) => harness.of(client).collection<Row>('born').insertOne({ _id })));
    expect(await collection('born').countDocuments()).toBe(8);
  });

  it('a document past its expireAfterSeconds is removed, a younger one stays', async () => {
    const rows = collection('expiring');
    await rows.createIndex({ at: 1 }, { name: 'ttl', expireAfterSeconds: 60 });
    await rows.insertMany([
      { _id: 1, at: new Date(Date.now() - 120_000) },
      { _id: 2, at: new Date() },
    ]);
    await harness.sql('CALL documentdb_api_internal.delete_expired_rows()'); // what runs every minute
    expect((await rows.find().toArray()).map(({ _id }) => _id)).toEqual([2]);
  });

  it('a dropped collection is empty when it comes back, and dropping what is not there is no error', async () => {
    const rows = collection('dropped');
    await rows.insertOne({ _id: 1 });
    expect(await rows.drop()).toBe(true);
    await harness.db.dropCollection('never_there');
    await rows.insertOne({ _id: 2 });
    expect((await rows.find().toArray()).map(({ _id }) => _id)).toEqual([2]);
  });

  it('a database dropped while others write to it comes back with their writes', async () => {
    const db = harness.client.db(`${harness.db.databaseName}_churn`);
    await Promise.all(
      Array.from({ length: 10 }, async (_, round) => {
        await db.collection<Row>('rows').insertOne({ _id: round });
        if (round % 3 === 0) await db.dropDatabase();
        await db.collection<Row>('rows').insertOne({ _id: 100 + round });
      }),
    );
    await db.dropDatabase();
  });
});
