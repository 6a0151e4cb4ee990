import { CRASH_POINTS } from '../../../src/common/ports/crash_points.js';
import type { PodProcess } from '../bench/pod_process.js';
import type { Scenario } from '../bench/scenario.types.js';
import type { World } from '../bench/world.js';

/** Pods that are about to die, side by side. */
const AT_ONCE = 3;
/** A point that this pod never passes: partitions and rows went to others. */
const PATIENCE_MS = 8_000;
/** Judging needs something to judge. */
const RARE = new Set(['before_judge', 'after_judge', 'before_release', 'after_release']);

async function dieAt(world: World, pod: PodProcess): Promise<void> {
  if (!(await pod.ready())) return;
  const late = new Promise<'late'>((resolve) => setTimeout(resolve, PATIENCE_MS, 'late').unref());
  if ((await Promise.race([pod.ended, late])) !== 'late') return;
  pod.terminate(); // the points of the release are passed on the way out
  const later = new Promise<'late'>((resolve) => setTimeout(resolve, PATIENCE_MS, 'late').unref());
  if ((await Promise.race([pod.ended, later])) === 'late') pod.kill();
}

/** Pods that die of `kill -9` at named points, one after the other, beside two that live. */
export const crashPoints: Scenario = {
  name: 'crash_points',
  about:
    'kill -9 at every named crash point: before and after insert, commit, hook, claim, mark, send, answer, outcome, judgement, release, slot',
  async run(world, length) {
    const points = world.random.shuffle(CRASH_POINTS.flatMap((point) => Array.from({ length }, () => point)));
    const victims = points.map((point) => ({ point, nth: RARE.has(point) ? 1 : world.random.int(1, 4) }));
    for (const { point, nth } of victims) world.fault(`kill -9 at ${point}, passing ${nth}`);
    const line = async (): Promise<void> => {
      for (let crash = victims.shift(); crash; crash = victims.shift())
        await dieAt(world, await world.start({ crash }));
    };
    await Promise.all(Array.from({ length: AT_ONCE }, line));
  },
};
