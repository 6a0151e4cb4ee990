// What single writes and batches promise outside of transactions, seen through the official driver.
import { beforeEach, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { CutProxy } from './support/cut_proxy.js';
import { describeGateway, failure, until } from './support/harness.js';
import { newSession, RawClient } from './support/raw_client.js';

interface Row {
  _id: number | string;
  n?: number;
  dedupe_key?: string;
  at?: Date;
}

describeGateway('writes', (harness) => {
  let rows: mongo.Collection<Row>;

  beforeEach(async () => {
    rows = harness.db.collection<Row>('rows');
    await rows.createIndex(
      { dedupe_key: 1 },
      { name: 'dedupe', unique: true, partialFilterExpression: { dedupe_key: { $type: 'string' } } },
    );
    await rows.deleteMany({});
    await rows.insertMany([
      { _id: 1, n: 0, dedupe_key: 'x' },
      { _id: 2, n: 0 },
    ]);
  });

  it('a duplicate on a named unique index is told apart from one on _id', async () => {
    const named = await failure(rows.insertOne({ _id: 3, dedupe_key: 'x' }));
    expect(named.code).toBe(11000);
    expect(named.message).toBe(
      `E11000 duplicate key error collection: ${rows.namespace} index: dedupe dup key: { dedupe_key: "x" }`,
    );
    const id = await failure(rows.insertOne({ _id: 1 }));
    expect(id.message).toBe(`E11000 duplicate key error collection: ${rows.namespace} index: _id_ dup key: { _id: 1 }`);
  });

  it('a duplicate by update, upsert and find-and-modify carries 11000, the index and its pattern', async () => {
    const update = await failure(rows.updateOne({ _id: 2 }, { $set: { dedupe_key: 'x' } }));
    const upsert = await failure(rows.updateOne({ _id: 9 }, { $set: { dedupe_key: 'x' } }, { upsert: true }));
    const modify = await failure(rows.findOneAndUpdate({ _id: 2 }, { $set: { dedupe_key: 'x' } }));
    for (const error of [update, upsert, modify]) {
      expect(error.code).toBe(11000);
      expect(error.message).toContain('index: dedupe dup key: { dedupe_key: "x" }');
    }
    expect(modify).toMatchObject({ keyPattern: { dedupe_key: 1 }, keyValue: { dedupe_key: 'x' } });
    const onId = await failure(rows.findOneAndUpdate({ _id: 1, n: 77 }, { $set: { n: 1 } }, { upsert: true }));
    expect(onId).toMatchObject({ code: 11000, keyPattern: { _id: 1 }, keyValue: { _id: 1 } });
  });

  it('an ordered batch stops at its first failure, an unordered one names each', async () => {
    const documents = [{ _id: 10 }, { _id: 1 }, { _id: 11 }, { _id: 12, dedupe_key: 'x' }, { _id: 13 }];
    const ordered = await failure<mongo.MongoBulkWriteError>(rows.insertMany(documents));
    expect(ordered.result.insertedCount).toBe(1);
    expect([ordered.writeErrors].flat().map((one) => one.index)).toEqual([1]);
    await rows.deleteOne({ _id: 10 });
    const unordered = await failure<mongo.MongoBulkWriteError>(rows.insertMany(documents, { ordered: false }));
    expect(unordered.result.insertedCount).toBe(3);
    const errors = [unordered.writeErrors].flat();
    expect(errors.map((one) => [one.index, one.code])).toEqual([
      [1, 11000],
      [3, 11000],
    ]);
    expect(errors[1]?.errmsg).toContain('index: dedupe dup key: { dedupe_key: "x" }');
  });

  it('a mixed bulk write counts what each operation did', async () => {
    const result = await rows.bulkWrite([
      { insertOne: { document: { _id: 3 } } },
      { updateMany: { filter: {}, update: { $inc: { n: 1 } } } },
      { updateOne: { filter: { _id: 4 }, update: { $set: { n: 4 } }, upsert: true } },
      { replaceOne: { filter: { _id: 3 }, replacement: { n: 30 } } },
      { deleteOne: { filter: { _id: 2 } } },
    ]);
    expect(result).toMatchObject({ insertedCount: 1, matchedCount: 4, upsertedCount: 1, deletedCount: 1 });
    expect(result.upsertedIds).toEqual({ 2: 4 });
  });

  it('updates by pipeline use $$NOW, the time of the database', async () => {
    const before = Date.now();
    await rows.updateOne({ _id: 1 }, [{ $set: { at: { $add: ['$$NOW', 60_000] } } }]);
    const at = (await rows.findOne({ _id: 1 }))?.at?.getTime() ?? 0;
    expect(at).toBeGreaterThanOrEqual(before + 59_000);
    expect(at).toBeLessThanOrEqual(Date.now() + 61_000);
  });

  it('find-and-modify inserts when nothing matches, and gives the old or the new document', async () => {
    const upserted = await rows.findOneAndUpdate(
      { _id: 5 },
      { $inc: { n: 1 }, $setOnInsert: { dedupe_key: 'five' } },
      { upsert: true, returnDocument: 'after' },
    );
    expect(upserted).toEqual({ _id: 5, n: 1, dedupe_key: 'five' });
    expect(await rows.findOneAndUpdate({ _id: 5 }, { $inc: { n: 1 } })).toMatchObject({ n: 1 });
    expect(await rows.findOneAndDelete({ _id: 5 }, { sort: { n: 1 }, hint: { _id: 1 } })).toMatchObject({ n: 2 });
    expect(await rows.findOneAndDelete({ _id: 5 })).toBeNull();
  });

  it('an unknown operator is a FailedToParse, a changed _id an ImmutableField', async () => {
    expect(await failure(rows.updateOne({ _id: 1 }, { $foo: { n: 1 } } as never))).toMatchObject({ code: 9 });
    expect(await failure(rows.updateOne({ _id: 1 }, { $set: { _id: 8 } }))).toMatchObject({ code: 66 });
  });

  it('a write whose answer was lost is applied once when the driver repeats it', async () => {
    const proxy = new CutProxy(harness.gateway.port);
    const address = `mongodb://127.0.0.1:${await proxy.listen()}/?directConnection=true&retryWrites=true`;
    const theirs = harness.of(await harness.connect(address)).collection<Row>('rows');
    proxy.loseAnswerTo('update');
    expect(await theirs.updateOne({ _id: 1 }, { $inc: { n: 1 } })).toMatchObject({ modifiedCount: 1 });
    proxy.loseAnswerTo('findAndModify');
    expect(await theirs.findOneAndUpdate({ _id: 1 }, { $inc: { n: 1 } }, { returnDocument: 'after' })).toMatchObject({
      n: 2,
    });
    expect(proxy.lost).toBe(2);
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(2);
    await proxy.close();
  });

  it('a numbered write is done again only when it had failed', async () => {
    const client = await RawClient.connect(harness.gateway.port);
    const { numbered } = newSession();
    const of = { ...numbered(1), $db: harness.db.databaseName };
    const invalid = { update: 'rows', updates: 5 };
    expect(await client.command({ ...invalid, ...of })).toMatchObject({ ok: 0 });
    const update = { update: 'rows', updates: [{ q: { _id: 1 }, u: { $inc: { n: 1 } } }], ...of };
    expect(await client.command(update)).toMatchObject({ ok: 1, nModified: 1 });
    expect(await client.command(update)).toMatchObject({ ok: 1, nModified: 1 });
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(1);
    client.close();
  });

  it('batches that lock the same rows in opposite order all succeed, and count each operation once', async () => {
    const ids = Array.from({ length: 20 }, (_, at) => 100 + at);
    await rows.insertMany(ids.map((_id) => ({ _id, n: 0 })));
    const updates = (order: number[]) =>
      order.map((_id) => ({ updateOne: { filter: { _id }, update: { $inc: { n: 1 } } } }));
    const backwards = ids.toReversed();
    const results = await Promise.all(
      Array.from({ length: 24 }, (_, at) =>
        rows.bulkWrite(updates(at % 2 ? ids : backwards), { ordered: at % 3 === 0 }),
      ),
    );
    expect(results.every((one) => one.modifiedCount === 20)).toBe(true);
    const counts = await rows.find({ _id: { $gte: 100 } }).toArray();
    expect(counts.map(({ n }) => n)).toEqual(ids.map(() => 24));
  });

  it('sorted find-and-modify by many clients gives each row to one of them', async () => {
    await rows.insertMany(Array.from({ length: 60 }, (_, at) => ({ _id: `job${at}`, n: 5 })));
    const claimed: string[] = [];
    const claim = async (): Promise<void> => {
      for (;;) {
        const row = await rows.findOneAndUpdate({ n: 5 }, { $set: { n: 6 } }, { sort: { _id: 1 } });
        if (!row) return;
        claimed.push(String(row._id));
      }
    };
    await Promise.all(Array.from({ length: 8 }, claim));
    expect(claimed.length).toBe(60);
    expect(new Set(claimed).size).toBe(60);
  });

  it('a command that exceeds its maxTimeMS is stopped, and its connection serves the next', async () => {
    const session = harness.client.startSession();
    session.startTransaction();
    await rows.updateOne({ _id: 1 }, { $set: { n: 5 } }, { session });
    const error = await failure(rows.updateOne({ _id: 1 }, { $set: { n: 6 } }, { maxTimeMS: 100 } as never));
    expect(error).toMatchObject({ code: 50, codeName: 'MaxTimeMSExpired' });
    await until(async () => (await harness.waiting()) === 0, 'it waits no more');
    await session.abortTransaction();
    await session.endSession();
    expect((await rows.findOne({ _id: 1 }))?.n).toBe(0);
  });
});
