// `long-lane`: no-op rows through 1 and 4 pods with 10 and 100 slots each, against the hand-written claim loop with
// gathered deletes and with one delete a row.
import type { Bench, BenchContext } from '../bench.types.js';
import { connect, databaseName, dropAndClose, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { longCeilingSide, longProductSide } from '../long_lane.sides.js';
import { boundOf, casesOf, interleave, ratioOf } from '../measure.js';

const TARGET = 'bench:long';
const PODS = 4;
const CEILING_MUST = 0.7;
const MANY_PODS_MUST = 1;
const MOST_CONFLICTS = 0.2;

export const longLane: Bench = {
  name: 'long-lane',
  about: 'no-op rows, 1 and 4 pods, 10 and 100 slots, against hand-written claim loops',
  async run(context) {
    const rows = context.size(5_000, 400);
    const few = context.size(2_000, 200);
    const connection = await connect(context.mongoUri, databaseName('long_hand'));
    const sets = [];
    for (const slots of [100, 10]) for (const count of [1, PODS]) sets.push(await bootPods(context, count, slots));
    try {
      const [one100, four100, one10, four10] = sets as [PodSet, PodSet, PodSet, PodSet];
      const product = ({ pods, slots }: PodSet, size: number) =>
        longProductSide({
          name: `product, ${pods.length} pod${pods.length > 1 ? 's' : ''}, ${slots} slots`,
          pods,
          target: TARGET,
          rows: size,
        });
      const measured = await interleave(
        [
          product(one100, rows),
          longCeilingSide('ceiling, gathered deletes', 'gathered', connection, rows),
          longCeilingSide('ceiling, one delete a row', 'oneByOne', connection, few),
          product(four100, rows),
          product(one10, few),
          product(four10, few),
        ],
        context.rounds,
        context.say,
      );
      const [one, gathered, oneByOne, four, oneOfTen, fourOfTen] = measured.map(({ values }) => values);
      const conflicts = (side: number): number[] => measured[side]!.counts['conflicts/claim']!;
      return {
        cases: measured.flatMap(casesOf),
        ratios: [
          ratioOf('1 pod, 100 slots / gathered ceiling', one!, gathered!, CEILING_MUST),
          ratioOf('1 pod, 100 slots / ceiling with one delete a row', one!, oneByOne!),
          ratioOf('1 pod, 10 slots / gathered ceiling', oneOfTen!, gathered!),
          ratioOf('4 pods / 1 pod, 100 slots', four!, one!, MANY_PODS_MUST),
          ratioOf('4 pods / 1 pod, 10 slots', fourOfTen!, oneOfTen!, MANY_PODS_MUST),
          boundOf('conflicts per claim, 4 pods, 100 slots', conflicts(3), MOST_CONFLICTS),
          boundOf('conflicts per claim, 4 pods, 10 slots', conflicts(5), MOST_CONFLICTS),
        ],
        notes: ['a claim counts as a conflict when another pod won any of the ids it asked for'],
      };
    } finally {
      for (const { pods, database } of sets) {
        for (const pod of pods) await pod.close();
        await dropDatabase(context.mongoUri, database);
      }
      await dropAndClose(connection);
    }
  },
};

interface PodSet {
  readonly pods: EnginePod[];
  readonly slots: number;
  readonly database: string;
}

/** Pods on a database of their own, each aware of the others. */
async function bootPods({ mongoUri }: BenchContext, count: number, slots: number): Promise<PodSet> {
  const database = databaseName('long');
  const pods: EnginePod[] = [];
  for (let i = 0; i < count; i++) {
    pods.push(
      await EnginePod.boot({
        uri: mongoUri,
        database,
        jobs: { partitions: 8, long_lane: { slots } },
        targets: () => [{ name: TARGET, lane: 'long', concurrency: slots, handler: async () => undefined }],
      }),
    );
  }
  for (const pod of pods) await pod.beat();
  for (const pod of pods) await pod.beat(); // the first did not know the last yet
  return { pods, slots, database };
}
