// What multi-document transactions promise, seen through the official driver.
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { CutProxy } from './support/cut_proxy.js';
import { describeGateway, failure, until } from './support/harness.js';
import { newSession, opMsg, RawClient } from './support/raw_client.js';

interface Row {
  _id: number;
  n?: number;
  key?: string;
}

describeGateway('transactions', (harness) => {
  let rows: mongo.Collection<Row>;
  let session: mongo.ClientSession;

  beforeEach(async () => {
    rows = harness.db.collection<Row>('rows');
    await rows.deleteMany({});
    await rows.insertMany([
      { _id: 1, n: 0 },
      { _id: 2, n: 0 },
    ]);
    session = harness.client.startSession();
  });
  afterEach(() => session.endSession());

  it('a commit shows all of its writes, an abort none', async () => {
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session });
    await rows.insertOne({ _id: 3 }, { session });
    expect(await rows.countDocuments()).toBe(2);
    expect(await rows.countDocuments({}, { session })).toBe(3);
    await session.commitTransaction();
    expect(await rows.countDocuments()).toBe(3);

    session.startTransaction();
    await rows.deleteMany({}, { session });
    await session.abortTransaction();
    expect(await rows.countDocuments()).toBe(3);
  });

  it('reads see the snapshot of the first command', async () => {
    session.startTransaction();
    expect((await rows.findOne({ _id: 1 }, { session }))?.n).toBe(0);
    await rows.updateOne({ _id: 1 }, { $set: { n: 5 } });
    expect((await rows.findOne({ _id: 1 }, { session }))?.n).toBe(0);
    await session.abortTransaction();
  });

  it('a write to what another open transaction has written is a transient WriteConflict', async () => {
    const other = harness.client.startSession();
    other.startTransaction();
    await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session: other });
    session.startTransaction();
    const error = await failure(rows.updateOne({ _id: 1 }, { $inc: { n: 1 } }, { session }));
    expect(error).toMatchObject({ code: 112, codeName: 'WriteConflict' });
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
    await other.commitTransaction();
    await other.endSession();
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
  });

  it('a write to what was written since the snapshot is a transient WriteConflict, for find-and-modify too', async () => {
    session.startTransaction();
    await rows.findOne({ _id: 2 }, { session });
    await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } });
    const error = await failure(rows.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { session }));
    expect(error).toMatchObject({ code: 112 });
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
  });

  it('twelve writers of one row through withTransaction lose no write', async () => {
    await Promise.all(
      Array.from({ length: 12 }, () =>
        harness.client.withSession((mine) =>
          mine.withTransaction(async () => {
            const row = await rows.findOne({ _id: 1 }, { session: mine });
            await rows.updateOne({ _id: 1 }, { $set: { n: (row?.n ?? 0) + 1 } }, { session: mine });
          }),
        ),
      ),
    );
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(12);
  });

  it('a plain write behind an open transaction waits for its end and then succeeds', async () => {
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $set: { n: 10 } }, { session });
    const writes = [
      rows.updateOne({ _id: 1 }, { $inc: { n: 1 } }),
      rows.bulkWrite([
        { updateOne: { filter: { _id: 2 }, update: { $inc: { n: 1 } } } },
        { updateOne: { filter: { _id: 1 }, update: { $inc: { n: 1 } } } },
      ]),
      rows.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }),
    ];
    let done = 0;
    for (const write of writes) void write.then(() => (done += 1));
    await until(async () => (await harness.waiting()) === 3, 'three writes wait');
    expect(done).toBe(0);
    await session.commitTransaction();
    await Promise.all(writes);
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(13);
    expect((await rows.findOne({ _id: 2 }))?.n).toBe(1);
  });

  it('a duplicate key aborts the transaction and is told as one', async () => {
    session.startTransaction();
    await rows.insertOne({ _id: 3 }, { session });
    const error = await failure(rows.insertOne({ _id: 1 }, { session }));
    expect(error).toMatchObject({ code: 11000 });
    expect(error.message).toBe(
      `E11000 duplicate key error collection: ${rows.namespace} index: _id_ dup key: { _id: 1 }`,
    );
    const next = await failure(rows.insertOne({ _id: 4 }, { session }));
    expect(next).toMatchObject({ code: 251, codeName: 'NoSuchTransaction' });
    expect(next.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
    expect(await rows.countDocuments()).toBe(2);
  });

  it('a duplicate key in find-and-modify of a transaction names index and key', async () => {
    await rows.createIndex(
      { key: 1 },
      { name: 'key', unique: true, partialFilterExpression: { key: { $type: 'string' } } },
    );
    await rows.updateOne({ _id: 1 }, { $set: { key: 'x' } });
    session.startTransaction();
    const error = await failure(rows.findOneAndUpdate({ _id: 2 }, { $set: { key: 'x' } }, { session }));
    expect(error).toMatchObject({ code: 11000, keyPattern: { key: 1 }, keyValue: { key: 'x' } });
    expect(error.message).toContain('index: key dup key: { key: "x" }');
    await session.abortTransaction();
    await rows.dropIndex('key');
  });

  it('the same key inserted by a transaction that is still open is a conflict, not a duplicate', async () => {
    const other = harness.client.startSession();
    other.startTransaction();
    await rows.insertOne({ _id: 7 }, { session: other });
    session.startTransaction();
    const error = await failure(rows.insertOne({ _id: 7 }, { session }));
    expect(error).toMatchObject({ code: 112 });
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
    await other.commitTransaction();
    await other.endSession();
  });

  it('a key committed by another since the snapshot is a conflict, not a duplicate', async () => {
    session.startTransaction();
    await rows.findOne({ _id: 1 }, { session });
    await rows.insertOne({ _id: 7 });
    const error = await failure(rows.insertOne({ _id: 7 }, { session }));
    expect(error).toMatchObject({ code: 112 });
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
  });

  it('a key upserted by another since the snapshot is a conflict, one that the snapshot shows a duplicate', async () => {
    await rows.createIndex(
      { key: 1 },
      { name: 'key', unique: true, partialFilterExpression: { key: { $type: 'string' } } },
    );
    const upsert = (key: string) => rows.updateOne({ _id: 8 }, { $setOnInsert: { key } }, { upsert: true, session });
    await rows.updateOne({ _id: 1 }, { $set: { key: 'seen' } });
    session.startTransaction();
    await rows.findOne({ _id: 1 }, { session });
    await rows.updateOne({ _id: 2 }, { $set: { key: 'new' } });
    expect(await failure(upsert('new'))).toMatchObject({ code: 112 });
    await session.abortTransaction();
    session.startTransaction();
    const error = await failure(upsert('seen'));
    expect(error).toMatchObject({ code: 11000 });
    expect(error.message).toContain('index: key dup key: { key: "seen" }');
    await session.abortTransaction();
    await rows.dropIndex('key');
  });

  it('connections that PostgreSQL ends are a transient error inside a transaction, and replaced outside', async () => {
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $set: { n: 5 } }, { session });
    await harness.endBackends();
    const error = await failure(rows.updateOne({ _id: 1 }, { $set: { n: 6 } }, { session }));
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
    await session.abortTransaction();
    expect(await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } })).toMatchObject({ modifiedCount: 1 });
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
  });

  it('a commit may be repeated, and a commit of an aborted transaction is refused', async () => {
    session.startTransaction();
    await rows.insertOne({ _id: 3 }, { session });
    await session.commitTransaction();
    await session.commitTransaction();
    expect(await rows.countDocuments()).toBe(3);

    session.startTransaction();
    await rows.insertOne({ _id: 4 }, { session });
    await failure(rows.insertOne({ _id: 4 }, { session }));
    const error = await failure(session.commitTransaction());
    expect(error).toMatchObject({ code: 251 });
    expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
  });

  it('a commit whose answer was lost answers ok when the driver repeats it', async () => {
    const proxy = new CutProxy(harness.gateway.port);
    const client = await harness.connect(`mongodb://127.0.0.1:${await proxy.listen()}/?directConnection=true`);
    const mine = client.startSession();
    mine.startTransaction();
    await harness.of(client).collection<Row>('rows').insertOne({ _id: 9 }, { session: mine });
    proxy.loseAnswerTo('commitTransaction');
    await mine.commitTransaction();
    expect(proxy.lost).toBe(1);
    expect(await rows.countDocuments({ _id: 9 })).toBe(1);
    await client.close(true);
    await proxy.close();
  });

  it('a client that is killed leaves its transaction rolled back', async () => {
    const proxy = new CutProxy(harness.gateway.port);
    const client = await harness.connect(`mongodb://127.0.0.1:${await proxy.listen()}/?directConnection=true`);
    const mine = client.startSession();
    mine.startTransaction();
    await harness
      .of(client)
      .collection<Row>('rows')
      .updateOne({ _id: 1 }, { $set: { n: 99 } }, { session: mine });
    const waiting = rows.updateOne({ _id: 1 }, { $inc: { n: 1 } });
    await until(async () => (await harness.waiting()) === 1, 'the write waits');
    await proxy.close();
    await waiting;
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
    expect(await harness.open()).toBe(0);
  });

  it('a write that waits for a client that was killed is stopped', async () => {
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $set: { n: 5 } }, { session });
    const client = await RawClient.connect(harness.gateway.port);
    const update = {
      update: 'rows',
      updates: [{ q: { _id: 1 }, u: { $set: { n: 77 } } }],
      $db: harness.db.databaseName,
    };
    client.write(opMsg(update));
    await until(async () => (await harness.waiting()) === 1, 'the write waits');
    client.close();
    await until(async () => (await harness.waiting()) === 0, 'the write is stopped');
    await session.commitTransaction();
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(5);
  });

  it('a transaction over two sockets lives as long as one of them', async () => {
    const [first, second] = [
      await RawClient.connect(harness.gateway.port),
      await RawClient.connect(harness.gateway.port),
    ];
    const of = { ...newSession().numbered(1), autocommit: false, $db: harness.db.databaseName };
    expect(
      await first.command({ insert: 'rows', documents: [{ _id: 5 }], ...of, startTransaction: true }),
    ).toMatchObject({
      n: 1,
    });
    expect(await second.command({ insert: 'rows', documents: [{ _id: 6 }], ...of })).toMatchObject({ n: 1 });
    first.close();
    await first.closed;
    expect(await second.command({ insert: 'rows', documents: [{ _id: 7 }], ...of })).toMatchObject({ n: 1 });
    expect(await harness.open()).toBe(1);
    second.close();
    await until(async () => (await harness.open()) === 0, 'rolled back with its last socket');
    expect(await rows.countDocuments()).toBe(2);
  });

  it('a newer transaction of the session rolls the older one back, an older number is refused', async () => {
    const client = await RawClient.connect(harness.gateway.port);
    const { numbered } = newSession();
    const of = (number: number) => ({ ...numbered(number), autocommit: false, $db: harness.db.databaseName });
    const insert = { insert: 'rows', documents: [{ _id: 5 }] };
    expect(await client.command({ ...insert, ...of(1), startTransaction: true })).toMatchObject({ n: 1 });
    expect(await client.command({ ...insert, ...of(2), startTransaction: true })).toMatchObject({ n: 1 });
    expect(await client.command({ commitTransaction: 1, ...of(1), $db: 'admin' })).toMatchObject({ code: 251 });
    expect(await client.command({ ...insert, ...of(1), startTransaction: true })).toMatchObject({ code: 225 });
    expect(await client.command({ commitTransaction: 1, ...of(2), $db: 'admin' })).toMatchObject({ ok: 1 });
    expect(await client.command({ ...insert, ...of(2) })).toMatchObject({
      code: 256,
      codeName: 'TransactionCommitted',
    });
    expect(await rows.countDocuments({ _id: 5 })).toBe(1);
    client.close();
  });

  it('killSessions rolls back what the session has open', async () => {
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $set: { n: 4 } }, { session });
    await harness.db.admin().command({ killSessions: [session.id] });
    await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } });
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
    expect(await failure(session.commitTransaction())).toMatchObject({ code: 251 });
  });

  it('first inserts into a collection that is not there, by eight transactions at once, all arrive', async () => {
    const fresh = harness.db.collection<Row>('fresh_in_transactions');
    await Promise.all(
      Array.from({ length: 8 }, (_, _id) =>
        harness.client.withSession((mine) => mine.withTransaction(() => fresh.insertOne({ _id }, { session: mine }))),
      ),
    );
    expect(await fresh.countDocuments()).toBe(8);
  });

  it('a command that MongoDB does not allow in a transaction is refused', async () => {
    session.startTransaction();
    expect(await failure(rows.count({}, { session }))).toMatchObject({ code: 263 });
    await session.abortTransaction();
  });
});

describeGateway(
  'idle transactions',
  (harness) => {
    it('are rolled back after their time, and the next command says so', async () => {
      const rows = harness.db.collection<Row>('rows');
      await rows.insertOne({ _id: 1, n: 0 });
      const session = harness.client.startSession();
      session.startTransaction();
      await rows.updateOne({ _id: 1 }, { $set: { n: 5 } }, { session });
      await rows.updateOne({ _id: 1 }, { $inc: { n: 1 } }); // waits until the transaction is reaped
      expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
      const error = await failure(rows.findOne({ _id: 1 }, { session }));
      expect(error).toMatchObject({ code: 251, codeName: 'NoSuchTransaction' });
      expect(error.hasErrorLabel('TransientTransactionError')).toBe(true);
      await session.endSession();
    });
  },
  { idleTransactionMs: 200, reapEveryMs: 20 },
);
