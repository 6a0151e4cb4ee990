import type { PodProcess } from '../bench/pod_process.js';
import { FAST_TARGETS, LEASE_MS, LONG_TARGETS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { expectTakeover, namesOf, termsOf, until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

/** It runs something that others must take back when it stands still. */
const runsOnLongLane = async (world: World, pod: PodProcess): Promise<boolean> => {
  const claims = { status: 'RUNNING' as const, target: /^long:/, claimed_by: namesOf(pod) };
  return (await world.jobs.find(claims, { limit: 1 }).toArray()).length > 0;
};

/** A pod stands still past its lease, others take over, and it comes back in the middle of what it did. */
export const frozenPod: Scenario = {
  name: 'frozen_pod',
  about: 'SIGSTOP past the lease, takeover by another pod, SIGCONT',
  prepare(world) {
    // So that a stop finds something half done, and a pod that comes back finds others at it: what it writes late would
    // do harm. Few exclusive rows, because they run one after the other.
    world.defaults = {
      handler_ms: 80,
      long_handler_ms: 1_400,
      behaviours: { fail_once: 0.6 },
      targets: [...FAST_TARGETS, ...FAST_TARGETS, ...LONG_TARGETS, 'long:at_least_once', 'long:at_least_once'],
      produce_per_s: 1.5,
    };
  },
  async run(world, length) {
    for (let round = 0; round < 2 * length; round++) {
      const before = await world.wait(300, 1_500);
      const index = world.random.int(0, 1);
      const pod = world.alive[index]!;
      const terms = await termsOf(world, pod);
      await until(() => runsOnLongLane(world, pod));
      pod.freeze();
      const ms = await world.wait(LEASE_MS + 400, LEASE_MS + (round % 2 === 0 ? 1_200 : LEASE_MS));
      pod.resume();
      world.fault(`after ${before} ms pod ${index} stands still for ${ms} ms`);
      await expectTakeover(world, pod, terms);
    }
    await world.wait(500);
  },
  judge(world, lines) {
    if (!lines.some(({ what }) => what === 'reclaimed'))
      world.violated('scenario', 'no row of the long lane was reclaimed');
  },
};

/** A handler computes for longer than the lease: timers, renewals and answers all come late. */
export const blockedLoop: Scenario = {
  name: 'blocked_loop',
  about: 'the event loop of a pod is blocked, for a moment and past the lease',
  async run(world, length) {
    for (let round = 0; round < length; round++) {
      // At least one of each three outlives the lease.
      const blocks = [
        LEASE_MS + 1_000,
        ...Array.from({ length: 2 }, () => world.random.pick([600, 1_500, LEASE_MS + 1_000])),
      ];
      for (const ms of world.random.shuffle(blocks)) {
        const before = await world.wait(200, 1_000);
        const index = world.random.int(0, 1);
        const pod = world.alive[index]!;
        const terms = ms > LEASE_MS ? await termsOf(world, pod) : undefined;
        pod.tell({ do: 'block', ms });
        world.fault(`after ${before} ms the loop of pod ${index} is blocked for ${ms} ms`);
        await world.wait(ms + 200);
        if (terms) await expectTakeover(world, pod, terms);
      }
    }
  },
};
