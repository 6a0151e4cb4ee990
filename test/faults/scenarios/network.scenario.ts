import type { MongoNetwork } from '../bench/mongo_proxy.js';
import { LEASE_MS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { expectTakeover, termsOf } from '../bench/takeover.js';

const CUTS: readonly MongoNetwork[] = ['refuse', 'stall', 'hole'];
/** Between two outages of the database, at least. */
const ROWS_BETWEEN = 11;

/** One pod loses the database, the other does not. */
export const cutPod: Scenario = {
  name: 'cut_pod',
  about: 'one pod is cut from the database (refused, stalled, black-holed) past its lease, and comes back',
  async run(world, length) {
    const cuts = world.random.shuffle(CUTS);
    let lastWasPast = false;
    for (let round = 0; round < 2 * length; round++) {
      // One of each two outlives the lease, whatever is drawn.
      const past: boolean = round % 2 === 0 ? world.random.chance(0.5) : !lastWasPast;
      lastWasPast = past;
      const before = await world.wait(300, 1_200);
      const index = world.random.int(0, 1);
      const pod = world.alive[index]!;
      const network = cuts[round % cuts.length]!;
      const terms = past ? await termsOf(world, pod) : undefined;
      pod.proxy.become(network);
      const ms = await world.wait(past ? LEASE_MS + 600 : 500, LEASE_MS + 1_500);
      pod.proxy.become('pass');
      world.fault(`after ${before} ms pod ${index}: ${network} for ${ms} ms`);
      if (terms) await expectTakeover(world, pod, terms);
    }
    await world.wait(300);
  },
};

/** Nobody has a database for a while, with everything under way. */
export const databaseAway: Scenario = {
  name: 'database_away',
  about: 'the database is away for all pods under load: refused, or everything stalls and arrives late',
  prepare(world) {
    world.defaults = { produce_per_s: 10 }; // most of the time nothing can be enqueued
  },
  async run(world, length) {
    for (let round = 0; round < 2 * length; round++) {
      const before = await world.wait(500, 1_500);
      await world.business(ROWS_BETWEEN);
      const network = world.random.pick(CUTS);
      for (const pod of world.alive) {
        pod.proxy.become(network);
      }
      const ms = await world.wait(1_000, length > 1 ? 15_000 : LEASE_MS + 1_500);
      for (const pod of world.alive) {
        pod.proxy.become('pass');
      }
      world.fault(`after ${before} ms the database: ${network} for ${ms} ms`);
    }
    await world.wait(300);
  },
};
