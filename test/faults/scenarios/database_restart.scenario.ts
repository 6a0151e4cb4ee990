import { DurableDatabase } from '../bench/durable_database.js';
import { readLedgers } from '../bench/ledger.js';
import { LEASE_MS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import type { World } from '../bench/world.js';

const MINUTE = 60_000;

/** What producers were told is committed, by the names of the rows. */
const committed = (world: World): string[] =>
  readLedgers(world.folder).flatMap((line) => (line.what === 'hook' ? line.rows : []));

async function missing(world: World, names: readonly string[]): Promise<string[]> {
  const rows = await world.connection.collection('produced').find().toArray();
  const there = new Set(rows.map((row) => String(row['n'])));
  return names.filter((name) => !there.has(name));
}

/** The server itself dies under load, and comes back on what it had on disk. */
export const databaseRestart: Scenario = {
  name: 'database_restart',
  about: 'the database server is killed under load, is away for longer than a lease, and starts again on its disk',
  ownServer: true,
  unavailable: () => DurableDatabase.unavailable(),
  prepare(world) {
    world.defaults = { produce_per_s: 10 };
  },
  async run(world, length) {
    const server = world.server!;
    for (const name of ['fsync', 'synchronous_commit']) {
      if ((await server.setting(name)) !== 'on') world.violated('scenario', `${name} is not on`);
    }
    for (let round = 0; round < length; round++) {
      const before = await world.wait(1_500, 2_500);
      const gateway = world.random.pick(['dies', 'stays'] as const);
      await server.kill(gateway);
      const promised = committed(world);
      const long = length > 1 && round === 0;
      const ms = await world.wait(long ? MINUTE : LEASE_MS + 200, long ? MINUTE : LEASE_MS + 1_500);
      await server.start();
      world.fault(`after ${before} ms the server is killed (its gateway ${gateway}) and away for ${ms} ms`);
      if (promised.length < 10)
        world.violated('scenario', `only ${promised.length} rows were committed before the kill`);
      const gone = await missing(world, promised);
      if (gone.length > 0) world.violated('lost', `committed before the kill, gone after it: ${gone.join(', ')}`);
    }
    await world.wait(500);
  },
};
