// The sides of the long-lane benches: any number of pods of the product, and the hand-written ceilings.
import type { Connection } from 'mongoose';
import { LongLaneCeiling, type Ending } from './ceilings/long_lane.ceiling.js';
import { CpuTime } from './cpu_time.js';
import { CommandCount } from './command_count.js';
import { STOP_MS, type EnginePod } from './engine.js';
import { fill } from './fast_lane.sides.js';
import type { Side } from './measure.js';
import { seconds } from './work.js';

export interface LongProduct {
  name: string;
  pods: readonly EnginePod[];
  target: string;
  rows: number;
}

/** No-op rows through the pods' long lanes, all pods on one database. */
export function longProductSide({ name, pods, target, rows }: LongProduct): Side {
  const drain = async (count: number): Promise<void> => {
    const done = endedTogether(pods, count);
    const lanes = await Promise.all(pods.map((pod) => pod.startLongLane(target)));
    try {
      await done;
    } finally {
      await Promise.all(lanes.map((lane) => lane.stop(STOP_MS)));
    }
  };
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      const first = pods[0]!;
      await first.empty();
      await fill(first, target, 200);
      await drain(200);
      await fill(first, target, rows);
      const before = commandsOf(pods);
      const claims = countClaims(pods);
      const cpu = new CpuTime();
      const began = performance.now();
      await drain(rows);
      const value = rows / seconds(began);
      const client = cpu.per(rows);
      claims.stop();
      return {
        value,
        counts: {
          'client µs/row': client,
          'commands/row': (commandsOf(pods) - before) / rows,
          'conflicts/claim': claims.conflicts / Math.max(1, claims.claims),
          'rows lost/row asked for': claims.lost / Math.max(1, claims.rows + claims.lost),
          'rows/claim': claims.rows / Math.max(1, claims.claims),
        },
      };
    },
  };
}

const commandsOf = (pods: readonly EnginePod[]): number => pods.reduce((sum, { commands }) => sum + commands.total, 0);

/** Resolves when the pods together have ended `count` more rows. */
function endedTogether(pods: readonly EnginePod[], count: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = count;
    const offs = pods.map(({ events }) =>
      events.on((event) => {
        if (event.type === 'dead') reject(new Error(`a row went DEAD: ${event.reason}`));
        if (event.type !== 'run_ended' || event.result !== 'success' || --left > 0) return;
        for (const off of offs) off();
        resolve();
      }),
    );
  });
}

function countClaims(pods: readonly EnginePod[]) {
  const seen = { claims: 0, rows: 0, lost: 0, conflicts: 0 };
  const offs = pods.map(({ events }) =>
    events.on((event) => {
      if (event.type !== 'claimed') return;
      seen.claims++;
      seen.rows += event.rows;
      seen.lost += event.conflicts;
      // Ids that another pod won: the claim met a conflict, however many of its rows were concerned.
      if (event.conflicts > 0) seen.conflicts++;
    }),
  );
  return Object.assign(seen, { stop: () => offs.forEach((off) => off()) });
}

export function longCeilingSide(name: string, ending: Ending, connection: Connection, rows: number): Side {
  const ceiling = new LongLaneCeiling(connection);
  const commands = new CommandCount(connection.getClient());
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await ceiling.fill(rows);
      commands.reset();
      const cpu = new CpuTime();
      const began = performance.now();
      const run = await ceiling.drain(ending);
      const value = run / seconds(began);
      if (run !== rows) throw new Error(`${name}: ran ${run} of ${rows} rows`);
      return { value, counts: { 'client µs/row': cpu.per(rows), 'commands/row': commands.total / rows } };
    },
  };
}
