import { setTimeout as sleep } from 'node:timers/promises';
import type { JobDoc } from '../../../src/jobs/store/jobs.schema.js';
import { runsOf } from '../bench/invariants.js';
import { machineMs, readLedgers } from '../bench/ledger.js';
import type { PodProcess } from '../bench/pod_process.js';
import { FAST_TARGETS, LONG_TARGETS, NEW_TARGETS } from '../bench/pod_settings.js';
import { SeededRandom } from '../bench/random.js';
import type { Scenario } from '../bench/scenario.types.js';
import { namesOf } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

/**
 * Versions in the order in which their pods come: all pods of the new one, back, and so on. At last one pod goes back and
 * comes again, so that rows which only the new version knows find somebody in the end.
 */
const comings = (length: number): number[] => [
  ...Array.from({ length: length - 1 }, () => [2, 2, 1, 1]).flat(),
  2,
  2,
  1,
  2,
];

/** It ended in order: what ran had come to its end, and nothing is its own any more. */
async function expectGone(world: World, pod: PodProcess): Promise<void> {
  const owner = namesOf(pod);
  const owned = await world.connection.collection('job_partitions').countDocuments({ owner });
  const claimed = await world.jobs.countDocuments({ claimed_by: owner });
  const lines = readLedgers(world.folder).filter((line) => line.pod === pod.name);
  const open = runsOf(lines).filter(({ ended }) => !ended);
  if (owned > 0) world.violated('release', `${pod.name} stopped, and owns ${owned} partitions`);
  if (claimed > 0) world.violated('release', `${pod.name} stopped, and has ${claimed} claims`);
  if (open.length > 0)
    world.violated('release', `${pod.name} stopped while it ran ${open.map(({ n }) => n).join(', ')}`);
}

/** A new version comes pod by pod; it knows targets and a schedule that the old one does not. */
export const rollingRestart: Scenario = {
  name: 'rolling_restart',
  calm: true,
  about: 'pods are replaced one by one by a version that knows four targets and a schedule more, then back again',
  async run(world, length) {
    for (const version of comings(length)) {
      const others = world.alive;
      const old = others.find(({ settings }) => settings.version !== version) ?? others[0]!;
      await world.boot(1, { version });
      const before = await world.wait(200, 800);
      world.fault(
        `a pod of version ${version} starts, ${before} ms later one of version ${old.settings.version} stops`,
      );
      old.terminate();
      await old.ended;
      await expectGone(world, old);
    }
    const charged = await world.jobs.countDocuments({ target: { $in: [...NEW_TARGETS] }, crashes: { $gt: 0 } });
    if (charged > 0) world.violated('scenario', `${charged} rows were charged by pods that do not know their target`);
  },
};

/** What is done while the database keeps one pace. Each comes often enough to take effect in every round. */
const ON_ROWS = ['retry', 'retry', 'skip', 'skip', 'cancel', 'cancel', 'cancel', 'cancel'] as const;
const ON_TARGETS = ['pause', 'pause', 'resume', 'resume', 'resume'] as const;
/** How long a message of the database takes, either way, in ms. */
const PACES = [
  [0, 15],
  [10, 40],
] as const;
/** Rows are rejected all the time; not every one that is found still stands as it was when the admin comes. */
const INSIST_MS = 5_000;

type OnRow = (typeof ON_ROWS)[number];
type Action = OnRow | (typeof ON_TARGETS)[number];

interface Wish {
  action: Action;
  /** Of the pod that is asked. */
  index: number;
  /** Which row, as a share of those there are. */
  at: number;
  target: string;
}

/** Admins at random, on a database that takes its time. */
export const admins: Scenario = {
  name: 'admins',
  calm: true,
  about: 'a slow database, and admins who retry, skip, cancel, pause and resume at random',
  prepare(world) {
    world.defaults = { produce_per_s: 6, behaviours: { reject: 0.15 } };
  },
  async run(world, length) {
    const slow = new SeededRandom(`slow ${world.seed}`); // drawn from as often as messages come
    for (let round = 0; round < length; round++) {
      for (const [from, to] of world.random.shuffle(PACES)) {
        for (const { proxy } of world.pods) proxy.delayMs = () => slow.int(from, to);
        world.fault(`every command of the database takes ${2 * from} to ${2 * to} ms more`);
        for (const action of world.random.shuffle<Action>([...ON_ROWS, ...ON_TARGETS])) await administer(world, action);
      }
    }
    for (const target of [...FAST_TARGETS, ...LONG_TARGETS]) {
      await world.alive[0]!.call({ do: 'admin', action: 'resume', subject: target });
    }
    for (const action of ['job.retry', 'job.skip', 'job.cancel', 'target.pause']) {
      const done = await world.connection.collection('job_audit').countDocuments({ action });
      if (done === 0) world.violated('scenario', `no ${action} took effect`);
    }
  },
};

async function administer(world: World, action: Action): Promise<void> {
  const index = world.random.int(0, 1);
  const at = world.random.next();
  const target = world.random.pick([...FAST_TARGETS, ...LONG_TARGETS]);
  const before = await world.wait(50, 250);
  world.fault(`after ${before} ms pod ${index}: ${action} ${action === 'pause' || action === 'resume' ? target : ''}`);
  await act(world, { action, index, at, target });
}

async function act(world: World, { action, index, at, target }: Wish): Promise<void> {
  const pod = world.alive[index]!;
  if (action === 'pause' || action === 'resume') {
    await pod.call({ do: 'admin', action, subject: target });
    return;
  }
  const status = action === 'cancel' ? { $in: ['PENDING' as const, 'RUNNING' as const] } : ('DEAD' as const);
  for (const until = machineMs() + INSIST_MS; machineMs() < until; await sleep(50)) {
    const rows = await world.jobs.find({ status, 'payload.n': { $exists: true } }, { limit: 50 }).toArray();
    const row = rows[Math.floor(at * rows.length)];
    if (row && (await changed(world, pod, { action, row }))) return;
  }
}

/** Answers whether it took effect. */
async function changed(
  world: World,
  pod: PodProcess,
  { action, row }: { action: OnRow; row: JobDoc },
): Promise<boolean> {
  const id = row._id.toHexString();
  const { n } = row.payload as { n: string };
  world.touched.push({ id, n });
  if ((await pod.call({ do: 'admin', action, subject: id })) !== undefined) return false;
  // What still runs is removed when it ends.
  const gone = action !== 'retry' && !(await world.jobs.findOne({ _id: row._id }));
  if (gone) world.removed.push({ n, at: machineMs() });
  return true;
}
