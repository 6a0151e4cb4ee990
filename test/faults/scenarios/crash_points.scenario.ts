import { CRASH_POINTS, type CrashPoint } from '../../../src/common/ports/crash_points.js';
import { runsOf } from '../bench/invariants.js';
import { readLedgers } from '../bench/ledger.js';
import type { PodProcess } from '../bench/pod_process.js';
import { FAST_TARGETS, LEASE_MS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { termsOf, until } from '../bench/takeover.js';
import type { Wishes, World } from '../bench/world.js';

/** Pods that are about to die, side by side. */
const AT_ONCE = 4;
const PATIENCE_MS = 40_000;
/** A lease, and a few heartbeats to find it free and to judge it. */
const TAKEOVER_MS = 2 * LEASE_MS;
const PRODUCE_PER_S = 10;
/** What a dead pod leaves may all fall to one judge, or have ended just before it died: then another one dies. */
const MOST_BUSY_DEATHS = 4;
const BATCH = 'fast:batch:at_most_once';
const BURST = 24;
const BURST_MS = 2_000;
const MOST_BURSTS = 10;
/** Passed by whoever takes over what somebody left in flight. */
const JUDGED: ReadonlySet<CrashPoint> = new Set(['before_judge', 'after_judge']);
/** Passed on the way out. */
const RELEASED: ReadonlySet<CrashPoint> = new Set(['before_release', 'after_release']);
/** Passed once, or by the next tick of a schedule. */
const ONCE: ReadonlySet<CrashPoint> = new Set([...JUDGED, ...RELEASED, 'before_slot', 'after_slot']);

interface Crash {
  point: CrashPoint;
  nth: number;
}

const died = (pod: PodProcess): boolean => pod.end?.signal === 'SIGKILL';
const endOf = ({ end, output }: PodProcess): string =>
  end ? `code ${end.code}, signal ${end.signal}\n${output.slice(-2_000)}` : 'it lives';

async function dieAt(world: World, crash: Crash, settings: Wishes): Promise<void> {
  const pod = await world.start({ crash, ...settings });
  const isUp = await pod.ready(); // some points are passed while it boots
  if (isUp && RELEASED.has(crash.point)) {
    await termsOf(world, pod);
    pod.terminate();
  }
  await within(PATIENCE_MS, pod.ended);
  if (!died(pod)) world.violated('scenario', `nobody passed ${crash.point}: ${endOf(pod)}`);
  if (pod.alive) pod.kill();
}

/** Partitions of what it runs. */
function openPartitions(world: World, { name }: PodProcess, target?: string): number[] {
  const lines = readLedgers(world.folder).filter(({ pod }) => pod === name);
  const open = runsOf(lines).filter((run) => !run.ended && (target === undefined || run.target === target));
  return open.flatMap(({ partition }) => partition ?? []);
}

/** It runs enough for so many judges, and at most once several rows under one mark. */
function isInTheMiddle(world: World, pod: PodProcess, judges: number): boolean {
  const batches = openPartitions(world, pod, BATCH);
  return new Set(openPartitions(world, pod)).size >= judges && new Set(batches).size < batches.length;
}

/** A few rows for each partition at once, again and again: some of them must go out together. */
async function bringToTheMiddle(world: World, pod: PodProcess, judges: number): Promise<boolean> {
  for (let bursts = 0; bursts < MOST_BURSTS; bursts++) {
    const items = Array.from({ length: BURST }, (_, at) => {
      return { n: `${pod.name}-burst-${bursts}-${at}`, target: BATCH, behaviour: 'ok' as const };
    });
    await pod.call({ do: 'enqueue', items });
    if (await until(() => isInTheMiddle(world, pod, judges), BURST_MS)) return true;
  }
  return false;
}

/** A pod dies in the middle of many runs, and nobody is there to judge them but pods that die of it. */
async function dieJudging(world: World, judges: readonly Crash[]): Promise<void> {
  const others = world.alive;
  const pods = await Promise.all(judges.map((crash) => world.start({ crash })));
  await Promise.all(pods.map((pod) => pod.ready()));
  for (const other of others) other.terminate();
  await Promise.all(others.map((other) => other.ended));
  for (let deaths = 0; deaths < MOST_BUSY_DEATHS && pods.some(({ alive }) => alive); deaths++) {
    const busy = await world.start({ handler_ms: 500, produce_per_s: 20, targets: FAST_TARGETS });
    await busy.ready();
    const judges = pods.filter(({ alive }) => alive).length;
    if (!(await bringToTheMiddle(world, busy, judges))) world.violated('scenario', 'nothing much was in flight');
    busy.kill();
    await Promise.all(pods.map((pod) => within(TAKEOVER_MS, pod.ended)));
  }
  for (const pod of pods) {
    if (!died(pod)) world.violated('scenario', `nobody passed ${pod.crash!.point}: ${endOf(pod)}`);
    if (pod.alive) pod.kill();
  }
}

async function within(ms: number, end: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => (timer = setTimeout(resolve, ms, false)));
  const ended = await Promise.race([end.then(() => true), late]);
  clearTimeout(timer);
  return ended;
}

interface Surroundings {
  /** What everybody enqueues. */
  business?: World['defaults'];
  /** What those that die do besides. */
  victims?: Wishes;
  /** They die at this passing of their point, or before. */
  most?: number;
}

/** Pods that die of `kill -9` at named points, some at once, beside two that live. */
function crashesAt(
  part: string,
  chosen: readonly CrashPoint[],
  { business = {}, victims: settings = { produce_per_s: PRODUCE_PER_S }, most = 4 }: Surroundings = {},
): Scenario {
  return {
    name: `crash_points_${part}`,
    about: `kill -9 at named crash points, ${part}`,
    prepare(world) {
      world.defaults = business;
    },
    async run(world, length) {
      const points = world.random.shuffle(chosen.flatMap((point) => Array(length).fill(point) as CrashPoint[]));
      const crashes = points.map((point): Crash => {
        const nth = ONCE.has(point) ? 1 : world.random.int(1, most);
        world.fault(`kill -9 at ${point}, passing ${nth}`);
        return { point, nth };
      });
      const victims = crashes.filter((crash) => !JUDGED.has(crash.point));
      const line = async (): Promise<void> => {
        for (let crash = victims.shift(); crash; crash = victims.shift()) await dieAt(world, crash, settings);
      };
      await Promise.all(Array.from({ length: AT_ONCE }, line));
      const judges = crashes.filter((crash) => JUDGED.has(crash.point));
      for (let next = judges.splice(0, 2); next.length > 0; next = judges.splice(0, 2)) await dieJudging(world, next);
    },
  };
}

const ENQUEUE = /insert|commit|hook|slot/;
const RUN = /mark|send|answer/;

/** Where a death between two steps of a run hurts most. */
const AT_MOST_ONCE_MOSTLY = [
  'fast:at_most_once',
  'fast:at_most_once',
  'fast:at_most_once',
  'fast:batch:at_most_once',
  'fast:batch:at_most_once',
  'long:at_most_once',
  'fast:at_least_once',
  'fast:batch',
  'long:at_least_once',
  'long:exclusive',
];

const named = (chosen: RegExp): CrashPoint[] => CRASH_POINTS.filter((point) => chosen.test(point));

export const crashPoints: readonly Scenario[] = [
  crashesAt('enqueue', named(ENQUEUE)),
  crashesAt('run', named(RUN), { business: { targets: AT_MOST_ONCE_MOSTLY } }),
  crashesAt(
    'hand_over',
    CRASH_POINTS.filter((point) => !ENQUEUE.test(point) && !RUN.test(point)),
  ),
  // Pods that enqueue nothing: what they commit are `ctx.complete`, `on_dead` and slots.
  crashesAt('end', ['before_commit', 'before_commit', 'after_commit', 'after_commit'], {
    business: { behaviours: { reject: 0.25, complete: 0.25 } },
    victims: { produce_per_s: 0 },
    most: 10,
  }),
];
