// `bullmq`: BullMQ on Redis in memory against the fast lane and `enqueueMany`, no-op handlers on both sides. Unequal on
// purpose: a row here is a document of a transactional database, with an order and a fence.
import { inTransaction } from '../../../src/common/utils/transaction.js';
import type { Bench } from '../bench.types.js';
import { databaseName, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { productSide } from '../fast_lane.sides.js';
import { casesOf, interleave, ratioOf, type Side } from '../measure.js';
import { bullmqPeer } from '../peers/bullmq.peer.js';
import { drainSide } from '../peers/peer.sides.js';
import { inChunks, seconds, workItem } from '../work.js';

const FAST = 'bench:fast';
const PARTITIONS = 8;
const BULK = 100;
const MUST = { drain: 1, bulk: 1 };
/** Its best concurrency here; more changes nothing. */
const CONCURRENCY = 100;

export const bullmq: Bench = {
  name: 'bullmq',
  about: 'addBulk and drain of BullMQ on Redis in memory against enqueueMany and the fast lane',
  async run(context) {
    const database = databaseName('bullmq_engine');
    const pod = await EnginePod.boot({
      uri: context.mongoUri,
      database,
      jobs: { partitions: PARTITIONS },
      targets: () => [
        { name: FAST, lane: 'fast', delivery_mode: 'at_least_once', batch_handler: async () => undefined },
      ],
    });
    const peer = bullmqPeer(context.redisUrl, { concurrency: CONCURRENCY });
    try {
      await pod.own(PARTITIONS);
      const rows = context.size(20_000, 640);
      const bulk = context.size(10_000, 300);
      const enqueue = (
        name: string,
        write: (from: number, to: number) => Promise<unknown>,
        open: () => Promise<void>,
      ) => bulkSide(name, bulk, write, open);
      const items = (from: number, to: number) =>
        Array.from({ length: to - from }, (_, i) => ({ target: FAST, ...workItem(from + i) }));
      const [drain, bullDrain, many, manyInTx, addBulk] = await interleave(
        [
          productSide({ name: 'fast lane, no-op', pod, target: FAST, partitions: PARTITIONS, rows }),
          drainSide('BullMQ, drain', peer, rows),
          enqueue(
            'enqueueMany of 100',
            (from, to) => pod.sideEffect.enqueueMany(items(from, to)),
            () => pod.empty(),
          ),
          enqueue(
            'enqueueMany of 100, each in a transaction',
            (from, to) => inTransaction(pod.connection, (tx) => pod.sideEffect.enqueueMany(items(from, to), tx)),
            () => pod.empty(),
          ),
          enqueue(
            'BullMQ, addBulk of 100',
            (from, to) => peer.enqueueMany!(from, to),
            () => peer.open(),
          ),
        ],
        context.rounds,
        context.say,
      );
      return {
        cases: [drain!, bullDrain!, many!, manyInTx!, addBulk!].flatMap(casesOf),
        ratios: [
          ratioOf('fast lane / BullMQ, drain', drain!.values, bullDrain!.values, MUST.drain),
          ratioOf('enqueueMany / addBulk, 100 each', many!.values, addBulk!.values, MUST.bulk),
          ratioOf('enqueueMany in a transaction / addBulk, 100 each', manyInTx!.values, addBulk!.values),
        ],
        notes: [`BullMQ with concurrency ${CONCURRENCY}, finished jobs dropped, Redis without persistence`],
      };
    } finally {
      await peer.close?.();
      await pod.close();
      await dropDatabase(context.mongoUri, database);
    }
  },
};

function bulkSide(
  name: string,
  rows: number,
  write: (from: number, to: number) => Promise<unknown>,
  open: () => Promise<void>,
): Side {
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await open();
      await write(0, BULK);
      const began = performance.now();
      await inChunks(rows, BULK, (from, to) => write(from + BULK, to + BULK));
      return { value: rows / seconds(began) };
    },
  };
}
