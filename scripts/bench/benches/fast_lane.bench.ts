// `fast-lane`: keyed at-least-once rows through the whole product into Kafka, against the hand-written ceiling and the
// row-by-row way, at 1, 8 and 64 partitions. `fast-lane-network`: again with the round trips of a network.
import { kafkaTargetName } from '../../../src/kafka/kafka.target.js';
import type { Bench, BenchContext } from '../bench.types.js';
import { connect, databaseName, dropAndClose, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { handWrittenSide, productSide } from '../fast_lane.sides.js';
import { BenchTopic } from '../kafka_topic.js';
import { boundOf, casesOf, interleave, ratioOf, type BenchResult, type Case, type Ratio } from '../measure.js';
import { delaying } from '../round_trip.js';

const ROW_BY_ROW_ROWS: Readonly<Record<number, number>> = { 1: 400, 8: 1_600, 64: 1_600 };
const CEILING_MUST = 0.7;
const ROW_BY_ROW_MUST = 8;
const MOST_COMMANDS = 0.05;
const MOST_SENDS = 0.02;
/** Emulated round trips, in ms. */
const NETWORK = { mongo: 1, kafka: 2 };

const PARTITIONS = [1, 8, 64];

export const fastLane: Bench = {
  name: 'fast-lane',
  about: 'keyed at-least-once rows into Kafka, against the hand-written ceiling and the row-by-row way',
  run: (context) => each(PARTITIONS, (partitions) => measure(context, partitions, undefined)),
};

export const fastLaneNetwork: Bench = {
  name: 'fast-lane-network',
  about: `the same with round trips of ${NETWORK.mongo} ms to the database and ${NETWORK.kafka} ms to Kafka`,
  run: (context) => {
    const { mongo, kafka } = NETWORK;
    const delays = new Map([...portsOf(context.mongoUri, mongo), ...portsOf(context.kafkaBrokers, kafka)]);
    const network = `mongo +${mongo} ms, kafka +${kafka} ms`;
    return delaying(delays, () => each(PARTITIONS, (partitions) => measure(context, partitions, network)));
  },
};

async function each(
  counts: readonly number[],
  work: (partitions: number) => Promise<{ cases: Case[]; ratios: Ratio[] }>,
): Promise<Omit<BenchResult, 'bench'>> {
  const results = [];
  for (const partitions of counts) results.push(await work(partitions));
  return {
    cases: results.flatMap(({ cases }) => cases),
    ratios: results.flatMap(({ ratios }) => ratios),
    notes: ['fresh collections every round; the ceilings keep neither order nor leases, and have one index'],
  };
}

async function measure(
  context: BenchContext,
  partitions: number,
  network: string | undefined,
): Promise<{ cases: Case[]; ratios: Ratio[] }> {
  const where = `${partitions} partition${partitions > 1 ? 's' : ''}${network ? `, ${network}` : ''}`;
  context.say(where);
  const topic = await BenchTopic.create(context.kafkaBrokers);
  const database = databaseName('fast');
  const connection = await connect(context.mongoUri, `${database}_hand`);
  const pod = await EnginePod.boot({
    uri: context.mongoUri,
    database,
    jobs: { partitions },
    kafka: {
      brokers: context.kafkaBrokers.split(','),
      topics: [{ event: 'bench', default_topic: topic.name, delivery_mode: 'at_least_once' }],
    },
  });
  try {
    await pod.own(partitions);
    const rows = context.size(20_000, 640);
    const slow = Math.min(rows, context.size(ROW_BY_ROW_ROWS[partitions]! / (network ? 4 : 1), 64));
    const target = kafkaTargetName(topic.name);
    const hand = { connection, topic, partitions };
    const [product, ceiling, rowByRow] = await interleave(
      [
        productSide({ name: `product, ${where}`, pod, target, partitions, rows }),
        handWrittenSide({ name: `ceiling, ${where}`, way: 'batches', rows, ...hand }),
        handWrittenSide({ name: `row by row, ${where}`, way: 'rowByRow', rows: slow, ...hand }),
      ],
      context.rounds,
      context.say,
    );
    return {
      cases: [product!, ceiling!, rowByRow!].flatMap(casesOf),
      ratios: [
        ratioOf(`product / ceiling, ${where}`, product!.values, ceiling!.values, CEILING_MUST),
        ratioOf(
          `product / row by row, ${where}`,
          product!.values,
          rowByRow!.values,
          partitions === 8 ? ROW_BY_ROW_MUST : undefined,
        ),
        boundOf(`commands per row, ${where}`, product!.counts['commands/row']!, MOST_COMMANDS),
        boundOf(`sends per row, ${where}`, product!.counts['sends/row']!, MOST_SENDS),
      ],
    };
  } finally {
    await pod.close();
    await dropDatabase(context.mongoUri, database);
    await dropAndClose(connection);
    await topic.remove();
  }
}

function portsOf(addresses: string, ms: number): [number, number][] {
  return [...addresses.matchAll(/:(\d+)/g)].map(([, port]) => [Number(port), ms]);
}
