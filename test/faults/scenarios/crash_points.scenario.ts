import { CRASH_POINTS, type CrashPoint } from '../../../src/common/ports/crash_points.js';
import type { PodProcess } from '../bench/pod_process.js';
import type { Scenario } from '../bench/scenario.types.js';
import type { World } from '../bench/world.js';

/** Pods that are about to die, side by side. */
const AT_ONCE = 3;
/** A pod that has not passed its point by then stops in order; points of the release are passed on that way. */
const PATIENCE_MS = 20_000;
/** What others left in flight is judged only when there is something to judge. */
const SELDOM: ReadonlySet<CrashPoint> = new Set(['before_judge', 'after_judge']);
/** Passed on the way out, or by the next tick of a schedule. */
const ONCE: ReadonlySet<CrashPoint> = new Set(['before_release', 'after_release', 'before_slot', 'after_slot']);

/** Answers whether it died there. */
async function dieAt(world: World, pod: PodProcess): Promise<boolean> {
  if (!(await pod.ready())) return true; // some points are passed while it boots
  if (!ONCE.has(pod.crash!.point) || pod.crash!.point.endsWith('slot')) {
    if (await within(PATIENCE_MS, pod.ended)) return pod.end?.signal === 'SIGKILL';
  } else await world.wait(2_500); // until others have given it a share
  pod.terminate();
  if (await within(PATIENCE_MS, pod.ended)) return pod.end?.signal === 'SIGKILL';
  pod.kill();
  return false;
}

async function within(ms: number, end: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => (timer = setTimeout(resolve, ms, false)));
  const ended = await Promise.race([end.then(() => true), late]);
  clearTimeout(timer);
  return ended;
}

/** Pods that die of `kill -9` at named points, some at once, beside two that live. */
function crashesAt(part: string, chosen: (point: CrashPoint) => boolean, targets?: readonly string[]): Scenario {
  return {
    name: `crash_points_${part}`,
    about: `kill -9 at named crash points, ${part}`,
    prepare(world) {
      if (targets) world.defaults = { targets };
    },
    async run(world, length) {
      const points = world.random.shuffle(
        CRASH_POINTS.filter(chosen).flatMap((point) => Array(length).fill(point) as CrashPoint[]),
      );
      const victims = points.map((point) => {
        const nth = SELDOM.has(point) || ONCE.has(point) ? 1 : world.random.int(1, 4);
        world.fault(`kill -9 at ${point}, passing ${nth}`);
        return { point, nth };
      });
      const line = async (): Promise<void> => {
        for (let crash = victims.shift(); crash; crash = victims.shift()) {
          const died = await dieAt(world, await world.start({ crash, produce_per_s: 15 }));
          if (!died && !SELDOM.has(crash.point)) world.violated('scenario', `nobody passed ${crash.point}`);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, line));
    },
  };
}

const ENQUEUE = /insert|commit|hook|slot/;
const RUN = /mark|send|answer/;

/** Where a death between two steps of a run hurts most. */
const AT_MOST_ONCE_MOSTLY = [
  'fast:at_most_once',
  'fast:at_most_once',
  'long:at_most_once',
  'fast:at_least_once',
  'fast:batch',
];

export const crashPoints: readonly Scenario[] = [
  crashesAt('enqueue', (point) => ENQUEUE.test(point)),
  crashesAt('run', (point) => RUN.test(point), AT_MOST_ONCE_MOSTLY),
  crashesAt('hand_over', (point) => !ENQUEUE.test(point) && !RUN.test(point)),
];
