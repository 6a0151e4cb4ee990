// `idle`: what pods with nothing to do ask the database, all loops on at their default intervals.
import { setTimeout as wait } from 'node:timers/promises';
import { SchedulesModule } from '../../../src/schedules/schedules.module.js';
import { SchedulesService } from '../../../src/schedules/schedules.service.js';
import type { Bench, BenchContext } from '../bench.types.js';
import { databaseName, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { boundOf, casesOf, interleave, type Side } from '../measure.js';

const TARGETS = 10;
const SCHEDULES = 20;
const MOST_COMMANDS = 1;
/** After it every idle wait has grown to its longest. */
const SETTLE_MS = 20_000;

export const idle: Bench = {
  name: 'idle',
  about: 'commands per pod and second of 1 and 4 idle pods, 10 targets, 20 schedules',
  async run(context) {
    const sets = await Promise.all([1, 4].map((count) => bootPods(context, count)));
    try {
      await wait(context.quick ? 1_000 : SETTLE_MS);
      // No warm-up: waiting was one. A window of all sides at once, since they disturb nobody.
      const window = context.quick ? 2_000 : 30_000;
      const sides = sets.map(({ pods }) => idleSide(pods, window));
      const measured = await together(sides, context);
      return {
        cases: measured.flatMap(casesOf),
        ratios: measured.map(({ name, values }) => boundOf(`commands per second, ${name}`, values, MOST_COMMANDS)),
        notes: [`windows of ${window / 1_000} s; half of the targets in each lane, schedules once a day, no Redis`],
      };
    } finally {
      for (const { pods, database } of sets) {
        await Promise.all(pods.map((pod) => pod.close()));
        await dropDatabase(context.mongoUri, database);
      }
    }
  },
};

/** All sides in the same windows. */
async function together(sides: readonly Side[], { rounds, say }: BenchContext) {
  const each = await Promise.all(sides.map((side) => interleave([side], { ...rounds, warmups: 0 }, say)));
  return each.flat();
}

function idleSide(pods: readonly EnginePod[], window: number): Side {
  return {
    name: `${pods.length} pod${pods.length > 1 ? 's' : ''}, each`,
    unit: 'commands/s',
    round: async () => {
      for (const { commands } of pods) commands.reset();
      await wait(window);
      const perPod = (count: number): number => count / pods.length / (window / 1_000);
      const counts: Record<string, number> = {};
      for (const { commands } of pods) {
        for (const [name, count] of Object.entries(commands.byName)) counts[name] = (counts[name] ?? 0) + perPod(count);
      }
      return { value: perPod(pods.reduce((sum, { commands }) => sum + commands.total, 0)), counts };
    },
  };
}

async function bootPods({ mongoUri }: BenchContext, count: number): Promise<{ pods: EnginePod[]; database: string }> {
  const database = databaseName(`idle${count}`);
  const pods: EnginePod[] = [];
  for (let i = 0; i < count; i++) {
    pods.push(
      await EnginePod.boot({
        uri: mongoUri,
        database,
        jobs: { workers: 'on' },
        imports: [SchedulesModule.forRoot({})],
        targets: (app) => {
          const schedules = app.get(SchedulesService, { strict: false });
          for (let n = 0; n < SCHEDULES; n++) {
            schedules.declare({ code: `bench-${n}`, cron: `${n} 3 * * *`, handler: async () => undefined });
          }
          return Array.from({ length: TARGETS }, (_, n) => ({
            name: `bench:${n}`,
            lane: n % 2 === 0 ? 'fast' : 'long',
            handler: async () => undefined,
          }));
        },
      }),
    );
  }
  return { pods, database };
}
