import { runsOf } from '../bench/invariants.js';
import type { LedgerLine } from '../bench/ledger.js';
import {
  isAtMostOnce,
  LENGTHY_MS,
  LIMIT,
  LIMITED_TARGET,
  PAIR_TARGET,
  type Behaviour,
  type PlannedRow,
} from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

type Run = ReturnType<typeof runsOf>[number];

/** Pods see a start a little later than the engine counts it. */
const TOLERANCE_MS = 200;
/** A limit counts slots; a row starts this much later than it got its own, at most. */
const SLOT_TO_START_MS = 1_000;
const LENGTHY_TARGETS = ['long:at_most_once', 'long:at_least_once', 'long:exclusive'];
const HUNG_TARGETS = ['fast:at_most_once', 'fast:at_least_once', 'long:at_most_once', 'long:at_least_once'];

const special = (behaviour: Behaviour, target: string, index = 0): PlannedRow => ({
  n: `${behaviour} ${target} ${index}`,
  target,
  behaviour,
  ...(target === 'long:exclusive' && { code: 'lengthy' }), // a code of its own, so that it holds up nobody
  ...(target === PAIR_TARGET && { code: 'pair' }),
});

const ROWS: readonly PlannedRow[] = [
  ...LENGTHY_TARGETS.map((target) => special('lengthy', target)),
  ...HUNG_TARGETS.map((target) => special('hang', target)),
  ...Array.from({ length: 8 }, (_, index) => special('slow', PAIR_TARGET, index)),
  ...Array.from({ length: 10 }, (_, index) => special('ok', LIMITED_TARGET, index)),
];

/** Times and numbers that a target sets: nothing is broken from outside. */
export const limits: Scenario = {
  name: 'limits',
  about: 'runs of more than two leases, handlers that overrun their time, a code with two places, a rate limit',
  calm: true,
  prepare(world) {
    world.defaults = { limits: true, long_timeout_ms: LENGTHY_MS + 1_500, produce_per_s: 3 };
    world.expectDead = ({ behaviour, target }) =>
      behaviour === 'reject' || (behaviour === 'hang' && isAtMostOnce(target));
  },
  async run(world, length) {
    for (let round = 0; round < length; round++) {
      const rows = world.random.shuffle(ROWS).map((row) => ({ ...row, n: `${row.n} of ${round}` }));
      world.fault(
        'runs of 7 s, handlers that hang, more rows than a code has places, more than a rate limit lets pass',
      );
      const failed = await world.alive[0]!.call({ do: 'enqueue', items: rows });
      if (failed) world.violated('scenario', `could not be enqueued: ${failed}`);
      const living = { 'payload.n': { $in: rows.map(({ n }) => n) }, status: { $ne: 'DEAD' as const } };
      await until(async () => (await world.jobs.countDocuments(living)) === 0, 3 * LENGTHY_MS);
    }
  },
  async judge(world, lines) {
    const runs = runsOf(lines);
    const dead = await world.jobs.find({ status: 'DEAD', 'payload.behaviour': 'hang' }).toArray();
    judgeLengthy(world, runs);
    judgeHung(world, runs, new Set(dead.map(({ payload }) => (payload as { n: string }).n)));
    judgePlaces(world, lines);
    judgeRate(world, runs);
  },
};

const named = (runs: readonly Run[], behaviour: Behaviour): Run[] =>
  runs.filter(({ n }) => n.startsWith(`${behaviour} `));

/** Their claims were renewed: once each, to the end. */
function judgeLengthy(world: World, runs: readonly Run[]): void {
  const lengthy = named(runs, 'lengthy');
  const whole = lengthy.filter(({ at, ended }) => ended?.result === 'ok' && ended.at - at >= LENGTHY_MS - TOLERANCE_MS);
  if (lengthy.length < LENGTHY_TARGETS.length || whole.length < lengthy.length)
    world.violated('scenario', `of ${lengthy.length} long runs ${whole.length} went to their end`);
}

/** At most once: nobody knows, so DEAD after one run. At least once: again. */
function judgeHung(world: World, runs: readonly Run[], dead: ReadonlySet<string>): void {
  const hung = named(runs, 'hang');
  for (const n of new Set(hung.map((run) => run.n))) {
    const own = hung.filter((run) => run.n === n);
    const good = isAtMostOnce(own[0]!.target)
      ? own.length === 1 && dead.has(n)
      : own.length > 1 && own.at(-1)!.ended?.result === 'ok' && !dead.has(n);
    if (!good) world.violated('scenario', `${n}: ${own.length} runs, ${dead.has(n) ? 'DEAD' : 'not DEAD'}`);
  }
  if (new Set(hung.map(({ target }) => target)).size < HUNG_TARGETS.length)
    world.violated('scenario', 'a handler that hangs was never called');
}

/** Two places per code over all pods, and both are used. */
function judgePlaces(world: World, lines: readonly LedgerLine[]): void {
  const of = new Set<string>();
  let most = 0;
  for (const line of lines) {
    const run = 'run' in line ? `${line.pod} ${line.run}` : '';
    if (line.what === 'start' && line.target === PAIR_TARGET) of.add(run);
    if (line.what === 'end') of.delete(run);
    most = Math.max(most, of.size);
  }
  if (most !== 2) world.violated('exclusive', `${most} runs side by side of a code with two places`);
}

function judgeRate(world: World, runs: readonly Run[]): void {
  const starts = runs.filter(({ target }) => target === LIMITED_TARGET).map(({ at }) => at);
  starts.forEach((at, index) => {
    const next = starts[index + LIMIT.limit];
    if (next !== undefined && next - at < LIMIT.window_ms - SLOT_TO_START_MS - TOLERANCE_MS)
      world.violated('scenario', `${LIMIT.limit + 1} starts within ${Math.round(next - at)} ms`);
  });
  if (starts.length < LIMIT.limit + 1) world.violated('scenario', `only ${starts.length} starts under a rate limit`);
}
