import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { inTransaction, outsideTransaction } from '../../src/common/utils/transaction.js';
import { partitionOf } from '../../src/jobs/policy/partition.js';
import type { EnqueueResult } from '../../src/jobs/side_effect.service.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

type Enqueue = (pod: TestPod, rows: { dedupe_key?: string }[]) => Promise<boolean[]>;

const alone: Enqueue = async ({ sideEffect }, rows) => {
  const results = await sideEffect.enqueueMany(rows.map((row) => ({ target: 'test:send', payload: 1, ...row })));
  return results.map(({ inserted }) => inserted);
};

/** Where an enqueue may stand, and how it is told that a key is known. */
const WAYS: [where: string, enqueue: Enqueue][] = [
  ['outside of a transaction', alone],
  ['in a transaction', (pod, rows) => inTransaction(pod.connection, () => alone(pod, rows))],
];

const target = { name: 'test:send', lane: 'fast' as const, handler: async () => undefined };

describe('enqueue', () => {
  const db = new TestDatabase();
  let pod: TestPod;
  beforeAll(async () => void (pod = await db.pod({}, [target])));
  afterEach(async () => void (await pod.jobs.deleteMany({})));
  afterAll(() => db.drop());
  const count = (): Promise<number> => pod.jobs.countDocuments();

  it('a business transaction that enqueues and then aborts leaves no row', async () => {
    const work = inTransaction(pod.connection, async () => {
      await pod.sideEffect.enqueue('test:send', { a: 1 });
      throw new Error('business said no');
    });
    await expect(work).rejects.toThrow('business said no');
    expect(await count()).toBe(0);
    expect(pod.eventsOf('enqueued')).toHaveLength(0);
  });

  it('a committed transaction has its row and its business write', async () => {
    await inTransaction(pod.connection, async (tx) => {
      await pod.connection.collection('orders').insertOne({ no: 1 }, { session: tx.session });
      await pod.sideEffect.enqueue('test:send', { a: 1 }, { key: 'k', version: 3 }, tx);
    });
    expect(await pod.jobs.findOne({})).toMatchObject({
      code: 'test:send',
      target: 'test:send',
      lane: 'fast',
      key: 'k',
      order_key: 'k',
      version: 3,
      payload: { a: 1 },
      status: 'PENDING',
      attempts: 0,
      crashes: 0,
      partition: partitionOf('k', 4),
    });
    expect(pod.eventsOf('enqueued')).toHaveLength(1);
  });

  it('without a key the partition comes from the dedupe_key', async () => {
    await pod.sideEffect.enqueue('test:send', 1, { dedupe_key: 'created:7' });
    const row = (await pod.jobs.findOne({}))!;
    expect(row).toMatchObject({ order_key: 'created:7', partition: partitionOf('created:7', 4) });
    expect(row).not.toHaveProperty('key');
  });

  it('the ambient transaction is joined when tx was forgotten, and left with tx: null', async () => {
    const work = inTransaction(pod.connection, async () => {
      await pod.sideEffect.enqueue('test:send', { in: true });
      await pod.sideEffect.enqueue('test:send', { in: false }, {}, null);
      throw new Error('abort');
    });
    await expect(work).rejects.toThrow('abort');
    expect((await pod.jobs.find({}).toArray()).map((row) => row.payload)).toEqual([{ in: false }]);
  });

  it('the same dedupe_key again inserts nothing and raises no error, in the same and in a later transaction', async () => {
    const results = await inTransaction(pod.connection, async (tx) => [
      await pod.sideEffect.enqueue('test:send', 1, { dedupe_key: 'd' }, tx),
      await pod.sideEffect.enqueue('test:send', 2, { dedupe_key: 'd' }, tx),
    ]);
    const later = await inTransaction(pod.connection, (tx) =>
      pod.sideEffect.enqueue('test:send', 3, { dedupe_key: 'd' }, tx),
    );
    const outside = await pod.sideEffect.enqueue('test:send', 4, { dedupe_key: 'd' });
    expect([...results, later, outside].map((each) => each.inserted)).toEqual([true, false, false, false]);
    expect((await pod.jobs.find({}).toArray()).map((row) => row.payload)).toEqual([1]);
  });

  it('two items of one call that share a dedupe_key keep the first', async () => {
    const results = await pod.sideEffect.enqueueMany([
      { target: 'test:send', payload: 1, dedupe_key: 'd' },
      { target: 'test:send', payload: 2, dedupe_key: 'd' },
      { target: 'test:send', payload: 3 },
    ]);
    expect(results.map((each) => each.inserted)).toEqual([true, false, true]);
    expect((await pod.jobs.find({}).sort({ payload: 1 }).toArray()).map((row) => row.payload)).toEqual([1, 3]);
  });

  it('one dedupe_key in two open transactions ends as one row and no error to either caller', async () => {
    const start = (payload: number): Promise<unknown> =>
      inTransaction(pod.connection, (tx) => pod.sideEffect.enqueue('test:send', payload, { dedupe_key: 'd' }, tx));
    const results = await Promise.all(Array.from({ length: 6 }, (_, index) => start(index)));
    expect(await count()).toBe(1);
    expect(results.filter((result) => (result as { inserted: boolean }).inserted)).toHaveLength(1);
  });

  it('several rows at once in open transactions that share one dedupe_key end as one row of that key', async () => {
    const start = (payload: number): Promise<EnqueueResult[]> =>
      inTransaction(pod.connection, (tx) =>
        pod.sideEffect.enqueueMany(
          [
            { target: 'test:send', payload },
            { target: 'test:send', payload, dedupe_key: 'd' },
          ],
          tx,
        ),
      );
    const results = await Promise.all(Array.from({ length: 4 }, (_, index) => start(index)));
    expect(await pod.jobs.countDocuments({ dedupe_key: 'd' })).toBe(1);
    expect(await count()).toBe(5);
    expect(results.map(([free]) => free!.inserted)).toEqual([true, true, true, true]);
    expect(results.filter(([, keyed]) => keyed!.inserted)).toHaveLength(1);
  });

  it.each(WAYS)('a row says whether its dedupe_key was made up, %s', async (_, enqueue) => {
    await enqueue(pod, [{}, { dedupe_key: 'given' }]);
    await enqueue(pod, [{ dedupe_key: 'alone' }]);
    await enqueue(pod, [{}]);
    const rows = await pod.jobs.find({}).sort({ _id: 1 }).toArray();
    expect(rows.map((row) => row.generated_key ?? row.dedupe_key)).toEqual([true, 'given', 'alone', true]);
    expect(rows.filter((row) => 'generated_key' in row)).toHaveLength(2);
  });

  it.each(WAYS)(
    'the row of an older version, which says nothing of its key, rejects a replay %s',
    async (_, enqueue) => {
      await enqueue(pod, [{ dedupe_key: 'old' }, { dedupe_key: 'older' }]);
      expect(await enqueue(pod, [{ dedupe_key: 'old' }])).toEqual([false]);
      expect(await enqueue(pod, [{}, { dedupe_key: 'older' }])).toEqual([true, false]);
      expect(await count()).toBe(3);
    },
  );

  it.each(WAYS)('beside the index of older versions over all keys a replay is rejected %s', async (_, enqueue) => {
    await pod.jobs.createIndex({ dedupe_key: 1 }, { name: 'dedupe', unique: true });
    try {
      expect(await enqueue(pod, [{ dedupe_key: 'd' }, {}])).toEqual([true, true]);
      expect(await enqueue(pod, [{ dedupe_key: 'd' }])).toEqual([false]);
      expect(await enqueue(pod, [{}, { dedupe_key: 'd' }])).toEqual([true, false]);
    } finally {
      await pod.jobs.dropIndex('dedupe');
    }
  });

  it('an unknown target, bad options and bad payloads are thrown with their field, before any write', async () => {
    const refused = async (item: object): Promise<unknown> =>
      pod.sideEffect
        .enqueueMany([
          { target: 'test:send', payload: 1 },
          { target: 'test:send', payload: 1, ...item },
        ])
        .catch((error: unknown) => error);
    const circular: Record<string, unknown> = {};
    circular['self'] = circular;
    expect(await refused({ target: 'nobody' })).toMatchObject({ code: 'unknown_target', field: 'items[1].target' });
    expect(await refused({ version: 1.5 })).toMatchObject({ code: 'invalid_options', field: 'items[1].version' });
    expect(await refused({ run_at: new Date(NaN) })).toMatchObject({ field: 'items[1].run_at' });
    for (const name of ['_bsontype', 'half \ud800', '__proto__', ''])
      expect(await refused({ headers: Object.fromEntries([[name, 'x']]) })).toMatchObject({
        code: 'invalid_options',
        field: 'items[1].headers',
      });
    expect(await refused({ priorty: 1 })).toMatchObject({ field: 'items[1].priorty' });
    expect(await refused({ payload: { n: [1n] } })).toMatchObject({
      code: 'invalid_payload',
      field: 'items[1].payload.n[0]',
    });
    expect(await refused({ payload: circular })).toMatchObject({
      code: 'invalid_payload',
      field: 'items[1].payload.self',
    });
    expect(await refused({ payload: () => 1 })).toMatchObject({ code: 'invalid_payload' });
    expect(await refused({ payload: { _bsontype: 'ObjectId' } })).toMatchObject({ code: 'invalid_payload' });
    expect(await refused({ payload: 'x'.repeat(2 ** 20) })).toMatchObject({
      code: 'payload_too_large',
      field: 'items[1].payload',
    });
    expect(await count()).toBe(0);
  });

  it('a payload is read back as what JSON.stringify would send', async () => {
    const payload = {
      '': 0,
      empty: {},
      list: [undefined, null],
      at: new Date(0),
      gone: undefined,
      $set: { 'a.b': -0 },
      deep: { toJSON: () => 'seen' },
      text: 'żółw 🐢',
      big: 2 ** 53,
    };
    await pod.sideEffect.enqueue('test:send', payload);
    expect((await pod.jobs.findOne({}))!.payload).toEqual(JSON.parse(JSON.stringify(payload)));
  });

  it('work left running past the end of its transaction is refused', async () => {
    let late: Promise<unknown> | undefined;
    let finish = (): void => undefined;
    const ended = new Promise<void>((resolve) => void (finish = resolve));
    await inTransaction(pod.connection, async () => {
      late = ended.then(() => pod.sideEffect.enqueue('test:send', 1)).catch((error: unknown) => error);
    });
    finish();
    expect(await late).toMatchObject({ code: 'transaction_ended' });
    expect(await count()).toBe(0);
  });

  it('enqueues at once on one session queue up behind each other', async () => {
    const work = inTransaction(pod.connection, async (tx) => {
      await Promise.all(Array.from({ length: 10 }, (_, index) => pod.sideEffect.enqueue('test:send', index, {}, tx)));
      throw new Error('abort');
    });
    await expect(work).rejects.toThrow('abort');
    expect(await count()).toBe(0);
  });

  it("Mongoose's own transaction with a passed session works, and hints after its commit only", async () => {
    await pod.connection.transaction(async (session) => {
      await pod.sideEffect.enqueue('test:send', 1, {}, { session });
      expect(await count()).toBe(0);
    });
    expect(await count()).toBe(1);
    expect(pod.eventsOf('enqueued').length).toBeGreaterThan(0);
  });

  it('nextVersion counts in commit order', async () => {
    const bump = (): Promise<number> =>
      inTransaction(pod.connection, (tx) => pod.sideEffect.nextVersion('order-1', tx));
    const numbers = await Promise.all([bump(), bump(), bump(), bump()]);
    expect(numbers.sort((a, b) => a - b)).toEqual([1, 2, 3, 4]);
  });

  it('costs one round trip, two for several rows of which one has a given dedupe_key', async () => {
    const rows = (extra: object, length = 20): { target: string; payload: number }[] =>
      Array.from({ length }, (_, payload) => ({ target: 'test:send', payload, ...extra }));
    const inTx = (items: { target: string; payload: number }[]): Promise<string[]> =>
      pod.commandsOf(() => inTransaction(pod.connection, (tx) => pod.sideEffect.enqueueMany(items, tx)));
    expect(await inTx(rows({}))).toEqual(['insert', 'commitTransaction']);
    expect(await inTx([...rows({ dedupe_key: 'd' }), ...rows({})])).toEqual(['find', 'insert', 'commitTransaction']);
    for (const once of ['fresh', 'known']) {
      expect([once, ...(await inTx(rows({ dedupe_key: 'e' }, 1)))]).toEqual([once, 'update', 'commitTransaction']);
    }
    for (const length of [1, 20]) {
      expect(await pod.commandsOf(() => pod.sideEffect.enqueueMany(rows({}, length)))).toEqual(['insert']);
      expect(await pod.commandsOf(() => pod.sideEffect.enqueueMany(rows({ dedupe_key: 'f' }, length)))).toEqual([
        'insert',
      ]);
    }
  });

  describe('several keyed rows at once, after fifty times without a known key', () => {
    const items = (...keys: string[]): { target: string; payload: number; dedupe_key: string }[] =>
      keys.map((dedupe_key) => ({ target: 'test:send', payload: 1, dedupe_key }));
    let run = 0;
    const fresh = async (name: string): Promise<void> => {
      for (let batch = 0; batch < 50; batch++) {
        await inTransaction(pod.connection, (tx) =>
          pod.sideEffect.enqueueMany(items(`${name}:${batch}:a`, `${name}:${batch}:b`), tx),
        );
      }
    };
    beforeEach(() => fresh(String(++run)));

    it('are inserted without a look', async () => {
      const work = (): Promise<unknown> =>
        inTransaction(pod.connection, (tx) => pod.sideEffect.enqueueMany(items('x', 'y'), tx));
      expect(await pod.commandsOf(work)).toEqual(['insert', 'commitTransaction']);
    });

    it('run their transaction once more where a key is known after all, and look from then on', async () => {
      let attempts = 0;
      const commands = await pod.commandsOf(async () => {
        const results = await inTransaction(pod.connection, (tx) => {
          attempts++;
          return pod.sideEffect.enqueueMany(items(`${run}:7:a`, 'new'), tx);
        });
        expect(results.map(({ inserted }) => inserted)).toEqual([false, true]);
      });
      expect(attempts).toBe(2);
      expect(commands.slice(0, 1)).toEqual(['insert']);
      expect(commands.slice(-3)).toEqual(['find', 'insert', 'commitTransaction']);
      const next = (): Promise<unknown> =>
        inTransaction(pod.connection, (tx) => pod.sideEffect.enqueueMany(items('newer', 'newest'), tx));
      expect(await pod.commandsOf(next)).toEqual(['find', 'insert', 'commitTransaction']);
    });

    it.each<[what: string, handle: (error: unknown) => unknown]>([
      ['swallows its errors', () => undefined],
      ['puts its errors into other words', (cause) => Promise.reject(new Error('ours', { cause }))],
    ])('do so too where the work %s', async (_, handle) => {
      await inTransaction(pod.connection, async (tx) => {
        await pod.sideEffect.enqueueMany(items(`${run}:7:a`, 'new'), tx).catch(handle);
      });
      expect(await pod.jobs.countDocuments({ dedupe_key: 'new' })).toBe(1);
    });

    it('lose one attempt at most, whatever others enqueue before the next', async () => {
      let attempts = 0;
      await inTransaction(pod.connection, async (tx) => {
        if (++attempts === 2) await outsideTransaction(() => fresh(`${run}:again`));
        await pod.sideEffect.enqueueMany(items(`${run}:7:a`, 'new'), tx);
      });
      expect(attempts).toBe(2);
    });

    it('are looked for in a transaction of somebody else, which nobody may run again', async () => {
      const session = await pod.connection.startSession();
      session.startTransaction();
      const results = await pod.sideEffect.enqueueMany(items(`${run}:7:a`, 'new'), { session });
      await session.commitTransaction();
      await session.endSession();
      expect(results.map(({ inserted }) => inserted)).toEqual([false, true]);
    });
  });
});
