import type { Scenario } from '../bench/scenario.types.js';

const MINUTE = 60_000;

/** Wall clocks of pods mean nothing. */
export const clocks: Scenario = {
  name: 'clocks',
  about:
    'pods whose wall clocks are five minutes off in both directions, and jump, also by an hour, beside one that is right',
  pods: 1,
  calm: true,
  async run(world, length) {
    const offsets = world.random.shuffle([5 * MINUTE, -5 * MINUTE]);
    await Promise.all(offsets.map((clock_offset_ms) => world.boot(1, { clock_offset_ms })));
    for (const offset of offsets) world.fault(`a pod whose clock is off by ${offset / MINUTE} minutes`);
    for (let round = 0; round < 6 * length; round++) {
      const before = await world.wait(300, 1_200);
      const index = world.random.int(0, 2);
      const minutes = world.random.pick([-60, -5, -1, 0, 1, 5, 60]);
      world.alive[index]?.tell({ do: 'clock', offset_ms: minutes * MINUTE });
      world.fault(`after ${before} ms the clock of pod ${index} jumps to ${minutes} minutes off`);
    }
    await world.wait(500);
  },
};
