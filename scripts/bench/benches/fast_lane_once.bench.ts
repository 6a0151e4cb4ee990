// `fast-lane-once`: the same at most once, with one and with twenty rows in flight, against the row-by-row way. What the
// guarantee costs: with one in flight each row has a mark of its own before it is sent. With twenty, one call of the client
// per topic-partition.
import { kafkaTargetName } from '../../../src/kafka/kafka.target.js';
import type { Bench } from '../bench.types.js';
import { connect, databaseName, dropAndClose, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { handWrittenSide, productSide } from '../fast_lane.sides.js';
import { BenchTopic } from '../kafka_topic.js';
import { casesOf, interleave, ratioOf } from '../measure.js';

const PARTITIONS = 8;
const IN_FLIGHT = 20;
const MUST = { one: 1.2, twenty: 6 };

export const fastLaneOnce: Bench = {
  name: 'fast-lane-once',
  about: 'at most once with 1 and 20 rows in flight, against the row-by-row way',
  async run(context) {
    const topic = await BenchTopic.create(context.kafkaBrokers);
    const topic20 = await BenchTopic.create(context.kafkaBrokers);
    const database = databaseName('once');
    const connection = await connect(context.mongoUri, `${database}_hand`);
    const pod = await EnginePod.boot({
      uri: context.mongoUri,
      database,
      jobs: { partitions: PARTITIONS },
      kafka: {
        brokers: context.kafkaBrokers.split(','),
        topics: [
          { event: 'bench', default_topic: topic.name },
          { event: 'bench-20', default_topic: topic20.name, max_in_flight: IN_FLIGHT },
        ],
      },
    });
    try {
      await pod.own(PARTITIONS);
      const product = (name: string, target: string, rows: number) =>
        productSide({ name, pod, target, partitions: PARTITIONS, rows });
      const slow = context.size(800, 64);
      const [one, twenty, rowByRow] = await interleave(
        [
          product('product, 1 in flight', kafkaTargetName(topic.name), slow),
          product(`product, ${IN_FLIGHT} in flight`, kafkaTargetName(topic20.name), context.size(4_000, 320)),
          handWrittenSide({
            name: 'row by row',
            way: 'rowByRow',
            connection,
            topic,
            partitions: PARTITIONS,
            rows: slow,
          }),
        ],
        context.rounds,
        context.say,
      );
      return {
        cases: [one!, twenty!, rowByRow!].flatMap(casesOf),
        ratios: [
          ratioOf('1 in flight / row by row', one!.values, rowByRow!.values, MUST.one),
          ratioOf(`${IN_FLIGHT} in flight / row by row`, twenty!.values, rowByRow!.values, MUST.twenty),
        ],
        notes: [
          `${PARTITIONS} partitions; one record a call of the Kafka client, with ${IN_FLIGHT} in flight one topic-partition`,
        ],
      };
    } finally {
      await pod.close();
      await dropDatabase(context.mongoUri, database);
      await dropAndClose(connection);
      await topic.remove();
      await topic20.remove();
    }
  },
};
