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

const ACTIONS = ['retry', 'skip', 'cancel', 'cancel', 'pause', 'resume', 'resume'] as const;

/** Admins at random, on a database that takes its time. */
export const admins: Scenario = {
  name: 'admins',
  calm: true,
  about: 'a slow database, and admins who retry, skip, cancel, pause and resume at random',
  prepare(world) {
    world.defaults = { produce_per_s: 6 };
  },
  async run(world, length) {
    const slow = new SeededRandom(`slow ${world.seed}`); // drawn from as often as messages come
    for (const { proxy } of world.pods) proxy.delayMs = () => slow.int(0, 15);
    world.fault('every message of the database takes up to 15 ms');
    for (let round = 0; round < 25 * length; round++) {
      const action = world.random.pick(ACTIONS);
      const index = world.random.int(0, 1);
      const at = world.random.next();
      const target = world.random.pick([...FAST_TARGETS, ...LONG_TARGETS]);
      const before = await world.wait(50, 250);
      world.fault(
        `after ${before} ms pod ${index}: ${action} ${action === 'pause' || action === 'resume' ? target : ''}`,
      );
      await act(world, { action, index, at, target });
    }
    for (const target of [...FAST_TARGETS, ...LONG_TARGETS]) {
      await world.alive[0]!.call({ do: 'admin', action: 'resume', subject: target });
    }
    const done = await world.connection.collection('job_audit').countDocuments();
    if (done < 5) world.violated('scenario', `only ${done} admin actions took effect`);
  },
};

async function act(
  world: World,
  { action, index, at, target }: { action: (typeof ACTIONS)[number]; index: number; at: number; target: string },
): Promise<void> {
  const pod = world.alive[index]!;
  if (action === 'pause' || action === 'resume') {
    await pod.call({ do: 'admin', action, subject: target });
    return;
  }
  const status = action === 'cancel' ? { $in: ['PENDING' as const, 'RUNNING' as const] } : ('DEAD' as const);
  const rows = await world.jobs.find({ status, 'payload.n': { $exists: true } }, { limit: 50 }).toArray();
  const row = rows[Math.floor(at * rows.length)];
  if (!row) return;
  const id = row._id.toHexString();
  const { n } = row.payload as { n: string };
  world.touched.push({ id, n });
  const failed = await pod.call({ do: 'admin', action, subject: id });
  // What still runs is removed when it ends.
  const gone = !failed && action !== 'retry' && !(await world.jobs.findOne({ _id: row._id }));
  if (gone) world.removed.push({ n, at: machineMs() });
}
