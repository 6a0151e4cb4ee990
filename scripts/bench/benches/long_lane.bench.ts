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
    const sets = { ten: await bootPods(context, 10), hundred: await bootPods(context, 100) };
    try {
      const product = (set: keyof typeof sets, count: number, size: number) =>
        longProductSide({
          name: `product, ${count} pod${count > 1 ? 's' : ''}, ${set === 'ten' ? 10 : 100} slots`,
          pods: sets[set].pods.slice(0, count),
          target: TARGET,
          rows: size,
        });
      const measured = await interleave(
        [
          product('hundred', 1, rows),
          longCeilingSide('ceiling, gathered deletes', 'gathered', connection, rows),
          longCeilingSide('ceiling, one delete a row', 'oneByOne', connection, few),
          product('hundred', PODS, rows),
          product('ten', 1, few),
          product('ten', PODS, few),
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
      for (const { pods, database } of Object.values(sets)) {
        for (const pod of pods) await pod.close();
        await dropDatabase(context.mongoUri, database);
      }
      await dropAndClose(connection);
    }
  },
};

async function bootPods({ mongoUri }: BenchContext, slots: number): Promise<{ pods: EnginePod[]; database: string }> {
  const database = databaseName('long');
  const pods: EnginePod[] = [];
  for (let i = 0; i < PODS; i++) {
    pods.push(
      await EnginePod.boot({
        uri: mongoUri,
        database,
        jobs: { partitions: 8, long_lane: { slots } },
        targets: () => [{ name: TARGET, lane: 'long', concurrency: slots, handler: async () => undefined }],
      }),
    );
  }
  return { pods, database };
}
