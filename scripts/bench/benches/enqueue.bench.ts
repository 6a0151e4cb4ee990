// `enqueue`: a business update with the enqueue in one transaction, against the same transaction with a bare insert of
// the same rows into the same collection with the same indexes; 1 and 16 callers, 1 and 20 rows, with and without a
// given `dedupe_key`.
import { mongo, type Connection } from 'mongoose';
import { inTransaction, type Tx } from '../../../src/common/utils/transaction.js';
import type { Bench, BenchContext } from '../bench.types.js';
import { databaseName, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { casesOf, interleave, ratioOf, type Case, type Ratio, type Side } from '../measure.js';
import { pool, seconds, workItem } from '../work.js';

const TARGET = 'bench:fast';
const MUST = { bare: 0.9, keyed: 0.75 };
const ORDERS = 200;

type Write = (tx: Tx, first: number) => Promise<unknown>;

export const enqueue: Bench = {
  name: 'enqueue',
  about: 'business update and enqueue in one transaction, against the same with a bare insert',
  async run(context) {
    const database = databaseName('enqueue');
    const pod = await EnginePod.boot({
      uri: context.mongoUri,
      database,
      jobs: { partitions: 64, hints: 'off' },
      targets: () => [{ name: TARGET, lane: 'fast', handler: async () => undefined }],
    });
    try {
      const results = [];
      for (const rows of [1, 20]) {
        for (const callers of [1, 16]) results.push(await measure(context, pod, { rows, callers }));
      }
      return {
        cases: results.flatMap(({ cases }) => cases),
        ratios: results.flatMap(({ ratios }) => ratios),
        notes: [
          'the bare insert writes ready-made documents of the same shape: it hashes, checks and measures nothing, and its ' +
            'keys are in no unique index',
        ],
      };
    } finally {
      await pod.close();
      await dropDatabase(context.mongoUri, database);
    }
  },
};

async function measure(
  context: BenchContext,
  pod: EnginePod,
  { rows, callers }: { rows: number; callers: number },
): Promise<{ cases: Case[]; ratios: Ratio[] }> {
  const where = `${rows} row${rows > 1 ? 's' : ''}, ${callers} caller${callers > 1 ? 's' : ''}`;
  context.say(where);
  const transactions = context.size(callers === 1 ? 300 : 800, 20);
  const side = (name: string, write: Write) =>
    transactionSide(`${name}, ${where}`, pod, { transactions, callers, rows }, write);
  const [without, keyed, bare] = await interleave(
    [
      side('enqueue', (tx, first) => enqueueRows(pod, tx, first, rows, false)),
      side('enqueue with a dedupe_key', (tx, first) => enqueueRows(pod, tx, first, rows, true)),
      side('bare insert', (tx, first) => insertRows(pod.connection, tx, first, rows)),
    ],
    context.rounds,
    context.say,
  );
  return {
    cases: [without!, keyed!, bare!].flatMap(casesOf),
    ratios: [
      ratioOf(`enqueue / bare insert, ${where}`, without!.values, bare!.values, MUST.bare),
      ratioOf(`enqueue with a dedupe_key / bare insert, ${where}`, keyed!.values, bare!.values, MUST.keyed),
    ],
  };
}

function transactionSide(
  name: string,
  pod: EnginePod,
  { transactions, callers, rows }: { transactions: number; callers: number; rows: number },
  write: Write,
): Side {
  const orders = pod.connection.db!.collection<{ _id: number; state: number }>('bench_orders');
  const once = (i: number) =>
    inTransaction(pod.connection, async (tx) => {
      await orders.updateOne({ _id: i % ORDERS }, { $set: { state: i } }, { session: tx.session });
      await write(tx, i * rows);
    });
  return {
    name,
    unit: 'transactions/s',
    round: async () => {
      await pod.empty();
      await orders.deleteMany({});
      await orders.insertMany(Array.from({ length: ORDERS }, (_, _id) => ({ _id, state: 0 })));
      await pool(2 * callers, callers, (i) => once(transactions + i));
      const before = pod.commands.total;
      const began = performance.now();
      await pool(transactions, callers, once);
      const value = transactions / seconds(began);
      return { value, counts: { 'commands/transaction': (pod.commands.total - before) / transactions } };
    },
  };
}

function enqueueRows({ sideEffect }: EnginePod, tx: Tx, first: number, rows: number, keyed: boolean) {
  const items = Array.from({ length: rows }, (_, i) => ({
    target: TARGET,
    ...workItem(first + i),
    ...(keyed && { dedupe_key: `bench:${first + i}` }),
  }));
  return sideEffect.enqueueMany(items, tx);
}

/** What the engine's row looks like, without what makes it one. */
function insertRows(connection: Connection, { session }: Tx, first: number, rows: number) {
  const now = new Date();
  const documents = Array.from({ length: rows }, (_, n) => {
    const { key, version, payload, headers } = workItem(first + n);
    const dedupe_key = new mongo.ObjectId().toHexString();
    const state = { status: 'PENDING', attempts: 0, crashes: 0, priority: 2 };
    const times = { run_at: now, next_run_at: now, created_at: now, updated_at: now };
    return {
      code: TARGET,
      target: TARGET,
      lane: 'fast',
      key,
      order_key: key,
      partition: n % 64,
      version,
      payload,
      dedupe_key,
      generated_key: true,
      ...state,
      ...times,
      trace_id: dedupe_key,
      headers,
      bytes: 600,
    };
  });
  const jobs = connection.db!.collection('jobs');
  return rows === 1 ? jobs.insertOne(documents[0]!, { session }) : jobs.insertMany(documents, { session });
}
