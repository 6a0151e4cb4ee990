/** One round of one scenario: boot, harm, heal, drain, stop, judge. Leaves nothing behind. */
import { setTimeout as sleep } from 'node:timers/promises';
import { DurableDatabase } from './durable_database.js';
import { judge, runsOf, type Evidence, type PodStory, type ProducedRow, type Violation } from './invariants.js';
import { ledgerBytes, machineMs, readLedgers, type LedgerLine } from './ledger.js';
import { LEASE_MS } from './pod_settings.js';
import type { PodProcess } from './pod_process.js';
import { Sampler } from './sampler.js';
import type { RoundReport, Scenario } from './scenario.types.js';
import { World } from './world.js';

/** Whatever happened, something moves again within three leases after the healing, and goes on moving. */
const STALL_MS = 3 * LEASE_MS;
/** Of a round of length 1. */
const DRAIN_MS = 90_000;
const SETTLE_MS = 6 * LEASE_MS;
const STOP_MS = 20_000;

export async function runRound(scenario: Scenario, seed: string, length = 1): Promise<RoundReport> {
  const began = machineMs();
  const world = await World.open(
    `${scenario.name} ${seed}`,
    scenario.ownServer ? await DurableDatabase.open() : undefined,
  );
  const sampler = new Sampler(world.connection);
  try {
    await scenario.prepare?.(world);
    const pods = scenario.pods ?? 2;
    await world.boot(pods);
    sampler.start();
    await scenario.run(world, length);
    await world.heal(pods);
    for (const pod of world.alive) pod.tell({ do: 'produce', per_s: 0 });
    const drained = await drain(world, length);
    await settle(world);
    await stopAll(world);
    await sampler.stop();
    const evidence = await gather(world);
    await scenario.judge?.(world, evidence.lines);
    const violations = [...world.violations, ...judge(evidence), ...drained.violations];
    for (const [fault, document] of sampler.found)
      violations.push({ invariant: 'state', text: `${fault}: ${document}` });
    if (violations.length > 0) world.keep(violations, evidence);
    return report({ scenario, seed, length, world, evidence, drained, violations, looks: sampler.looks, began });
  } finally {
    await scenario.release?.(world);
    await sampler.stop().catch(() => undefined);
    await world.close();
  }
}

interface Drained {
  ms: number;
  stallMs: number;
  violations: Violation[];
}

const WAITING = { status: { $in: ['PENDING', 'RUNNING'] }, target: { $not: /^schedule:/ } } as const;

/** Waits until nothing waits or runs any more. What stays is told with the rows themselves. */
async function drain(world: World, length: number): Promise<Drained> {
  const began = machineMs();
  let [moved, stallMs, left, lines] = [began, 0, -1, -1];
  for (;;) {
    const count = await world.jobs.countDocuments(WAITING as object);
    const now = machineMs();
    const written = ledgerBytes(world.folder);
    if (count !== left || written !== lines) moved = now;
    [left, lines] = [count, written];
    stallMs = Math.max(stallMs, now - moved);
    if (count === 0) return { ms: now - began, stallMs, violations: [] };
    if (now - moved > STALL_MS || now - began > DRAIN_MS * length) {
      const rows = await world.jobs.find(WAITING as object, { limit: 5, projection: { payload: 0 } }).toArray();
      const text = `${count} rows still wait ${Math.round(now - began)} ms after the healing: ${JSON.stringify(rows)}`;
      return { ms: now - began, stallMs, violations: [{ invariant: 'drain', text }] };
    }
    await sleep(count > 5_000 ? 1_000 : 100); // a count of many is a load of its own
  }
}

/** Partitions of pods that were killed last are nobody's until their lease is over: only then can a stop give all back. */
async function settle(world: World): Promise<void> {
  const partitions = world.connection.collection('job_partitions');
  const until = machineMs() + SETTLE_MS;
  while (machineMs() < until) {
    const alive = new Set(world.alive.map((pod) => pod.pid));
    const owners = await partitions.find({}, { projection: { owner: 1 } }).toArray();
    if (owners.every(({ owner }) => alive.has(String(owner).split(':')[1]!))) return;
    await sleep(100);
  }
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

async function gather(world: World): Promise<Evidence> {
  const { connection } = world;
  const lines = readLedgers(world.folder);
  const rows = await world.jobs.find({ target: { $not: /^schedule:/ } } as object).toArray();
  const left = rows.map((row) => ({ ...row, id: row._id.toHexString(), n: (row.payload as { n: string }).n }));
  const audits = await connection.collection('job_audit').find().toArray();
  const mourned = await connection.collection('mourned').find().toArray();
  const names = new Map(lines.flatMap((line) => (line.what === 'start' ? [[line.id, line.n] as const] : [])));
  for (const { id, n } of [...left, ...world.touched]) names.set(id, n);
  const busy = { $or: [{ owner: { $ne: null } }, { 'inflight.0': { $exists: true } }] };
  return {
    lines,
    produced: (await connection.collection('produced').find().toArray()) as unknown as ProducedRow[],
    left,
    mourned: mourned.map((row) => String(row['job'])),
    audit: audits
      .filter((row) => String(row['action']).startsWith('job.'))
      .map((row) => ({ action: String(row['action']), n: names.get(String(row['subject'])) ?? '' })),
    unreleased: await connection.collection('job_partitions').countDocuments(busy),
    pods: world.pods.map((pod) => storyOf(pod, lines)),
    expectDead: world.expectDead,
    calm: false,
    removed: [],
    terms: [],
    schedules: [],
    slot_rows: [],
  };
}

function storyOf(pod: PodProcess, lines: readonly LedgerLine[]): PodStory {
  const { end, name } = pod;
  const poisoned = lines.some((line) => line.what === 'poisoned' && line.pod === name);
  // A pod that is told to stop before it is up has nothing to end in order.
  const stopped = pod.stopping && (end?.code === 0 || !pod.isUp);
  const expected = !end || pod.doomed || poisoned || stopped;
  return {
    name,
    endedAt: end?.at ?? Infinity,
    ...(!expected && { diedByItself: `code ${end.code}, signal ${end.signal}\n${pod.output.slice(-2_000)}` }),
  };
}

function report(found: {
  scenario: Scenario;
  seed: string;
  length: number;
  world: World;
  evidence: Evidence;
  drained: Drained;
  violations: Violation[];
  looks: number;
  began: number;
}): RoundReport {
  const { scenario, seed, length, world, evidence, drained, violations, looks, began } = found;
  const runs = runsOf(evidence.lines).filter(({ slot }) => slot === undefined);
  const good = runs.filter(({ ended }) => ended?.result === 'ok').map(({ n }) => n);
  const count = (invariant: Violation['invariant']): number =>
    violations.filter((each) => each.invariant === invariant).length;
  return {
    scenario: scenario.name,
    seed,
    length,
    rows: evidence.produced.length,
    runs: runs.length,
    faults: world.faults.length,
    schedule: world.faults,
    lost: count('lost'),
    doubled: count('doubled'),
    out_of_order: count('order'),
    dead: evidence.left.filter(({ status }) => status === 'DEAD').length,
    repeated: good.length - new Set(good).size,
    drained_ms: Math.round(drained.ms),
    longest_stall_ms: Math.round(drained.stallMs),
    looks,
    seconds: Math.round((machineMs() - began) / 100) / 10,
    violations,
  };
}
