import { machineMs, type LedgerLine } from '../bench/ledger.js';
import type { ProducedRow } from '../bench/invariants.js';
import { FAST_TARGETS, LEASE_MS, LONG_TARGETS, PROBE_MS, type PlannedRow } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { quantile, waitsOf } from '../bench/waits.js';
import type { World } from '../bench/world.js';

/** Per length: `--length 50` makes 50,000. */
const ROWS = 1_000;
/** Rows of one transaction. */
const SLICE = 500;
const REST_MS = 2_000;
/** An exclusive target would drain one row at a time. */
const MAY_BE_DOWN = [...FAST_TARGETS, ...LONG_TARGETS.filter((target) => target !== 'long:exclusive')];

interface Flood {
  target: string;
  from: number;
  to: number;
}

const of = new WeakMap<World, Flood>();

/** Every tenth row of the fast lane has a key, of which there are 50. */
function slice(target: string, from: number): PlannedRow[] {
  return Array.from({ length: SLICE }, (_, index): PlannedRow => {
    const keyed = target.startsWith('fast:') && index % 10 === 0;
    const n = `flood ${from + index}`;
    return { n, target, behaviour: 'ok', ...(keyed && { key: `flood ${(index / 10) % 50}` }) };
  });
}

async function pour(world: World, target: string, count: number): Promise<void> {
  let next = 0;
  const line = async (pod: number): Promise<void> => {
    while (next < count) {
      const from = next;
      next += SLICE;
      const failed = await world.alive[pod]!.call({ do: 'enqueue', items: slice(target, from) });
      if (failed) world.violated('scenario', `rows from ${from} on could not be enqueued: ${failed}`);
    }
  };
  await Promise.all([line(0), line(1)]);
}

/** One target is away for long, and its rows pile up: they cost themselves nothing, and the others nothing either. */
export const targetFlood: Scenario = {
  name: 'target_flood',
  calm: true,
  about: 'rows pile up by the thousand at a target that is down: nothing is charged, the others go on, then it drains',
  async run(world, length) {
    const target = world.random.pick(MAY_BE_DOWN);
    const count = ROWS * length;
    const up = world.takeDown(target);
    const from = machineMs();
    await pour(world, target, count);
    const rest = await world.wait(REST_MS);
    world.fault(`${target} is down while ${count} rows arrive, and for ${rest} ms after`);
    const piled = { target, 'payload.behaviour': 'ok' };
    // RUNNING: the probe of the long lane.
    const status = { $in: ['PENDING' as const, 'RUNNING' as const] };
    const waiting = await world.jobs.countDocuments({ ...piled, status, 'payload.n': /^flood / });
    if (waiting < count) world.violated('scenario', `${waiting} of ${count} rows wait`);
    const charged = await world.jobs.countDocuments({
      ...piled,
      $or: [{ attempts: { $gt: 0 } }, { crashes: { $gt: 0 } }],
    });
    if (charged > 0) world.violated('scenario', `${charged} rows were charged for a target that was down`);
    of.set(world, { target, from, to: machineMs() });
    up();
  },
  async judge(world, lines) {
    const flood = of.get(world)!;
    const produced = (await world.connection.collection('produced').find().toArray()) as unknown as ProducedRow[];
    judgeOthers(world, lines, { flood, produced });
    const { target, from, to } = flood;
    const tried = lines.filter(
      (line) => line.what === 'start' && line.target === target && line.at > from && line.at < to,
    );
    // At the beginning each cell of each pod may find it down, with a batch; then it is one probe per interval over all.
    const most = 2 * 8 * 20 + ((to - from) / PROBE_MS) * 1.5;
    if (tried.length > most) world.violated('scenario', `${tried.length} starts while it was down, expected ${most}`);
  },
};

function judgeOthers(
  world: World,
  lines: readonly LedgerLine[],
  { flood, produced }: { flood: Flood; produced: readonly ProducedRow[] },
): void {
  const others = new Set(produced.filter(({ target }) => target !== flood.target).map(({ n }) => n));
  const waits = waitsOf(lines, { ...flood, counts: (n) => others.has(n) });
  if (waits.length < 5) world.violated('scenario', `only ${waits.length} rows of other targets meanwhile`);
  const slow = quantile(waits, 0.9);
  if (slow > 2 * LEASE_MS) world.violated('scenario', `rows of other targets waited ${slow} ms`);
}
