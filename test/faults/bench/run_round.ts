/**
 * One round of one scenario: boot, harm, heal, drain, stop, judge. Leaves nothing behind. Whatever fails on the way
 * breaks the round and is told with the evidence: a fault that is rare must not vanish because it also ended the round.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { drain, settle, type Drained } from './drain.js';
import { DurableDatabase } from './durable_database.js';
import { gather, withoutCollections } from './gather.js';
import { judge, runsOf, type Evidence, type Violation } from './invariants.js';
import { kindsWithout, missingKinds } from './kinds.js';
import { machineMs } from './ledger.js';
import { codeUnderTest } from './pod_build.js';
import { Sampler } from './sampler.js';
import type { RoundReport, Scenario } from './scenario.types.js';
import { until } from './takeover.js';
import { World } from './world.js';

const STOP_MS = 20_000;
/** Pods that run enqueue rows of each kind within a second or two. */
const LOAD_MS = 10_000;
/** A round with fewer says nothing. */
const LEAST_ROWS = 20;
/** Nor does one that was hardly looked at. */
const LEAST_LOOKS_PER_S = 1;

/** Throws only where there is nothing to break yet: no database, or no surroundings of the scenario's own. */
export async function runRound(scenario: Scenario, seed: string, length = 1): Promise<RoundReport> {
  const began = machineMs();
  const world = await World.open(
    `${scenario.name} ${seed}`,
    scenario.ownServer ? await DurableDatabase.open() : undefined,
  );
  const sampler = new Sampler(world.connection);
  try {
    world.calm = scenario.calm ?? false;
    await scenario.prepare?.(world);
    const drained = await breakAndHeal(world, sampler, scenario, length);
    await attempt(world, 'scenario', 'stop', () => stopAll(world));
    await attempt(world, 'scenario', 'last look', () => sampler.stop());
    const evidence = await judged(world, sampler, scenario, began);
    const violations = world.violations;
    if (violations.length > 0) world.keep(violations, evidence);
    return report({ scenario, seed, length, world, evidence, drained, looks: sampler.looks, began });
  } finally {
    await scenario.release?.(world);
    await sampler.stop().catch(() => undefined);
    await world.close();
  }
}

/** A pod that does not come up broke a promise; a scenario that ends early did not do its harm. */
async function breakAndHeal(
  world: World,
  sampler: Sampler,
  scenario: Scenario,
  length: number,
): Promise<Drained | undefined> {
  const pods = scenario.pods ?? 2;
  sampler.start();
  const up = await attempt(world, 'died', 'boot', () => world.boot(pods));
  if (up && pods > 0) await attempt(world, 'scenario', 'business', () => underLoad(world, scenario));
  if (up) await attempt(world, 'scenario', 'run', () => scenario.run(world, length));
  if (!(await attempt(world, 'died', 'heal', () => world.heal(pods)))) return undefined;
  for (const pod of world.alive) pod.tell({ do: 'produce', per_s: 0 });
  let drained: Drained | undefined;
  await attempt(world, 'scenario', 'drain', async () => void (drained = await drain(world, length)));
  await attempt(world, 'scenario', 'settle', () => settle(world));
  return drained;
}

/** Whatever the harm is, it meets rows of each kind; if none come, the judgement says so. */
async function underLoad(world: World, { kinds }: Scenario): Promise<void> {
  const produced = world.connection.collection<{ target: string }>('produced');
  const all = async (): Promise<boolean> => {
    const rows = await produced.find({}, { projection: { target: 1 } }).toArray();
    return (
      kindsWithout(
        rows.map(({ target }) => target),
        kinds,
      ).length === 0
    );
  };
  await until(all, LOAD_MS);
}

/** Answers whether it went well; if not, the round is broken. */
export async function attempt(
  world: Pick<World, 'violated'>,
  invariant: Violation['invariant'],
  what: string,
  act: () => unknown,
): Promise<boolean> {
  try {
    await act();
    return true;
  } catch (error) {
    world.violated(invariant, `${what}: ${error instanceof Error ? error.stack : String(error)}`);
    return false;
  }
}

/** Adds what the judge finds to the violations of the world. */
async function judged(world: World, sampler: Sampler, scenario: Scenario, began: number): Promise<Evidence> {
  const seconds = (machineMs() - began) / 1_000;
  let evidence: Evidence | undefined;
  await attempt(world, 'scenario', 'gather', async () => void (evidence = await gather(world, sampler, scenario)));
  if (!evidence) return withoutCollections(world, sampler, scenario);
  const { lines, produced } = evidence;
  await attempt(world, 'scenario', 'judge', () => scenario.judge?.(world, lines));
  world.violations.push(...judge(evidence), ...missingKinds(lines, scenario.kinds));
  world.violations.push(...tooLittle(produced.length, sampler, seconds));
  for (const [fault, document] of sampler.found) world.violated('state', `${fault}: ${document}`);
  return evidence;
}

export function tooLittle(
  rows: number,
  { looks, failure }: Pick<Sampler, 'looks' | 'failure'>,
  seconds: number,
): Violation[] {
  const why = failure === undefined ? '' : `: ${failure}`;
  return [
    ...(rows > LEAST_ROWS ? [] : [{ invariant: 'scenario' as const, text: `only ${rows} rows were produced` }]),
    ...(looks > LEAST_LOOKS_PER_S * seconds
      ? []
      : [{ invariant: 'scenario' as const, text: `only ${looks} looks in ${Math.round(seconds)} s${why}` }]),
  ];
}

async function stopAll(world: World): Promise<void> {
  const alive = world.pods.filter((pod) => pod.alive);
  for (const pod of alive) pod.terminate();
  const late = sleep(STOP_MS, 'late', { ref: false });
  const ends = Promise.all(alive.map((pod) => pod.ended));
  if ((await Promise.race([ends, late])) === 'late') {
    for (const pod of alive.filter((each) => each.alive)) {
      world.violated('died', `${pod.name} did not stop within ${STOP_MS} ms:\n${pod.output.slice(-2_000)}`);
      pod.kill();
    }
    await ends;
  }
}

function report(found: {
  scenario: Scenario;
  seed: string;
  length: number;
  world: World;
  evidence: Evidence;
  drained: Drained | undefined;
  looks: number;
  began: number;
}): RoundReport {
  const { scenario, seed, length, world, evidence, drained, looks, began } = found;
  const { violations } = world;
  const runs = runsOf(evidence.lines).filter(({ slot }) => slot === undefined);
  const good = runs.filter(({ ended }) => ended?.result === 'ok').map(({ n }) => n);
  const count = (invariant: Violation['invariant']): number =>
    violations.filter((each) => each.invariant === invariant).length;
  return {
    scenario: scenario.name,
    seed,
    length,
    code: codeUnderTest(),
    rows: evidence.produced.length,
    runs: runs.length,
    faults: world.faults.length,
    schedule: world.faults,
    lost: count('lost'),
    doubled: count('doubled'),
    out_of_order: count('order'),
    dead: evidence.left.filter(({ status }) => status === 'DEAD').length,
    repeated: good.length - new Set(good).size,
    drained_ms: Math.round(drained?.ms ?? 0),
    longest_stall_ms: Math.round(drained?.stallMs ?? 0),
    looks,
    seconds: Math.round((machineMs() - began) / 100) / 10,
    violations,
  };
}
