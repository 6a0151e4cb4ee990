// `agenda`: Agenda (newest, its best settings) and the fastest other queue on MongoDB against both lanes and the enqueue,
// no-op handlers on all sides, one MongoDB.
import type { Connection } from 'mongoose';
import type { Bench, BenchContext } from '../bench.types.js';
import { CommandCount } from '../command_count.js';
import { connect, databaseName, dropAndClose, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { productSide } from '../fast_lane.sides.js';
import { longProductSide } from '../long_lane.sides.js';
import { casesOf, interleave, ratioOf, type Measured, type Side } from '../measure.js';
import { agendaPeer } from '../peers/agenda.peer.js';
import { openwarPeer } from '../peers/openwar.peer.js';
import { drainSide, enqueueSide } from '../peers/peer.sides.js';
import { payloadOf, pool, seconds } from '../work.js';

const FAST = 'bench:fast';
const LONG = 'bench:long';
const PARTITIONS = 8;
const SLOTS = 100;
const MUST = { fast: 30, long: 10, enqueue: 1 };

export const agenda: Bench = {
  name: 'agenda',
  about: 'drain and enqueue of Agenda and of another MongoDB queue against both lanes',
  async run(context) {
    const connection = await connect(context.mongoUri, databaseName('agenda'));
    const database = databaseName('agenda_engine');
    const pod = await bootPod(context, database);
    try {
      const drains = await interleave(drainSides(context, pod, connection), context.rounds, context.say);
      const enqueues = await interleave(enqueueSides(context, pod, connection), context.rounds, context.say);
      const [fast, long, agendaDrain, openwarDrain] = drains as [Measured, Measured, Measured, Measured];
      const [one, many, agendaOne, agendaMany, openwarOne, openwarMany] = enqueues.map(({ values }) => values);
      return {
        cases: [...drains, ...enqueues].flatMap(casesOf),
        ratios: [
          ratioOf('fast lane / Agenda, drain', fast.values, agendaDrain.values, MUST.fast),
          ratioOf('long lane, 100 slots / Agenda, drain', long.values, agendaDrain.values, MUST.long),
          ratioOf('fast lane / mongodb-queue, drain', fast.values, openwarDrain.values),
          ratioOf('long lane, 100 slots / mongodb-queue, drain', long.values, openwarDrain.values),
          ratioOf('enqueue / Agenda, one by one', one!, agendaOne!, MUST.enqueue),
          ratioOf('enqueue / Agenda, 16 at once', many!, agendaMany!, MUST.enqueue),
          ratioOf('enqueue / mongodb-queue, one by one', one!, openwarOne!),
          ratioOf('enqueue / mongodb-queue, 16 at once', many!, openwarMany!),
        ],
        notes: ['enqueue outside of a transaction on all sides: no peer has any'],
      };
    } finally {
      await pod.close();
      await dropDatabase(context.mongoUri, database);
      await dropAndClose(connection);
    }
  },
};

function bootPod({ mongoUri }: BenchContext, database: string): Promise<EnginePod> {
  return EnginePod.boot({
    uri: mongoUri,
    database,
    jobs: { partitions: PARTITIONS, long_lane: { slots: SLOTS } },
    targets: () => [
      { name: FAST, lane: 'fast', delivery_mode: 'at_least_once', batch_handler: async () => undefined },
      { name: LONG, lane: 'long', concurrency: SLOTS, handler: async () => undefined },
    ],
  }).then(async (pod) => {
    await pod.own(PARTITIONS);
    return pod;
  });
}

function drainSides({ size }: BenchContext, pod: EnginePod, connection: Connection): Side[] {
  const commands = new CommandCount(connection.getClient());
  const rows = size(10_000, 640);
  return [
    productSide({ name: 'fast lane', pod, target: FAST, partitions: PARTITIONS, rows }),
    longProductSide({ name: 'long lane, 100 slots', pods: [pod], target: LONG, rows: size(5_000, 300) }),
    drainSide('Agenda, drain', agendaPeer(connection, { concurrency: 20, poll_ms: 20 }), size(400, 60), commands),
    drainSide('mongodb-queue, drain', openwarPeer(connection, { loops: 4, poll_ms: 20 }), size(800, 60), commands),
  ];
}

function enqueueSides({ size }: BenchContext, pod: EnginePod, connection: Connection): Side[] {
  const agendaQueue = agendaPeer(connection, { concurrency: 20, poll_ms: 20 });
  const openwar = openwarPeer(connection, { loops: 4, poll_ms: 20 });
  const few = size(800, 50);
  const many = size(2_000, 100);
  const enqueue = (name: string, rows: number, width: number): Side => ({
    name,
    unit: 'jobs/s',
    round: async () => {
      await pod.empty();
      const one = (i: number) => pod.sideEffect.enqueue(FAST, { ...payloadOf(i), i });
      await pool(width * 2, width, one);
      const began = performance.now();
      await pool(rows, width, one);
      return { value: rows / seconds(began) };
    },
  });
  return [
    enqueue('enqueue, one by one', few, 1),
    enqueue('enqueue, 16 at once', many, 16),
    enqueueSide('Agenda, one by one', agendaQueue, few, 1),
    enqueueSide('Agenda, 16 at once', agendaQueue, many, 16),
    enqueueSide('mongodb-queue, one by one', openwar, few, 1),
    enqueueSide('mongodb-queue, 16 at once', openwar, many, 16),
  ];
}
