import { setTimeout as sleep } from 'node:timers/promises';
import type { Command, Trap } from '../bench/mongo_proxy.js';
import { FAST_TARGETS, LONG_TARGETS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { namesOf, termsOf, until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

const on = (command: Command, name: string, collection: string): boolean =>
  command.name === name && command.collection === collection;

/** The writes whose reply may be lost, told apart by what they hold. */
export const TRAPS: readonly Trap[] = [
  { name: 'commit', matches: ({ name }) => name === 'commitTransaction' },
  { name: 'insert', matches: (command) => on(command, 'insert', 'jobs') },
  {
    name: 'claim',
    matches: (command) =>
      (on(command, 'update', 'jobs') || on(command, 'findAndModify', 'jobs')) &&
      command.holds('started_at') &&
      command.holds('claimed_by') &&
      !command.holds('$unset'),
  },
  {
    name: 'renew claims',
    matches: (command) => on(command, 'update', 'jobs') && command.holds('lease_until') && !command.holds('started_at'),
  },
  {
    name: 'renew leases',
    matches: (command) =>
      on(command, 'update', 'job_partitions') && !command.holds('inflight') && !command.holds('lease_token'),
  },
  {
    name: 'take',
    matches: (command) =>
      on(command, 'update', 'job_partitions') && !command.holds('inflight') && command.holds('lease_token'),
  },
  { name: 'mark', matches: (command) => on(command, 'update', 'job_partitions') && command.holds('$concatArrays') },
  { name: 'pull marks', matches: (command) => on(command, 'update', 'job_partitions') && command.holds('$pull') },
  { name: 'outcome: delete', matches: (command) => on(command, 'delete', 'jobs') },
  {
    name: 'outcome: update',
    matches: (command) =>
      on(command, 'update', 'jobs') && (command.holds('outcome_token') || command.holds('last_error')),
  },
  // Not the note of a run.
  { name: 'slot', matches: (command) => on(command, 'update', 'schedules') && command.holds('next_run_at') },
];

/** Passed only by those who take over. */
const OF_TAKEOVERS = TRAPS.filter(({ name }) => name === 'take' || name === 'pull marks');
const PATIENCE_MS = 20_000;

/** Rows that a pod which was killed had claimed: by right their leases run out. */
const orphaned = new WeakMap<World, number>();

/** What it owned and had in flight falls to the others. */
async function killOne(world: World): Promise<void> {
  const index = world.random.int(0, 1);
  const pod = world.alive[index]!;
  await termsOf(world, pod);
  const others = world.alive.filter((other) => other !== pod);
  for (const { proxy } of others) for (const trap of OF_TAKEOVERS) proxy.loseReplies(trap);
  pod.kill();
  world.fault(`pod ${index} is killed, the other loses a reply of take and of pull marks`);
  await pod.ended;
  await sleep(200); // what it had sent is still carried out
  const claims = await world.jobs.countDocuments({ status: 'RUNNING', claimed_by: namesOf(pod) });
  orphaned.set(world, (orphaned.get(world) ?? 0) + claims);
  await until(() => others.every(({ proxy }) => OF_TAKEOVERS.every(({ name }) => proxy.lost.includes(name))));
  await world.boot(1);
}

/** Traps that nothing stepped into. */
function missing(world: World): Trap[] {
  const lost = new Set(world.pods.flatMap(({ proxy }) => proxy.lost));
  return TRAPS.filter(({ name }) => !lost.has(name));
}

export const lostReplies: Scenario = {
  name: 'lost_replies',
  about:
    'replies of commit, insert, claim, renewal, take, mark, outcome and slot are lost; the command was carried out; a pod dies',
  prepare(world) {
    // More of what a lost reply could break: rows that end in a transaction, and claims that nobody may forget.
    world.defaults = {
      produce_per_s: 10,
      behaviours: { reject: 0.15, complete: 0.15, slow: 0.25 },
      targets: [...FAST_TARGETS, ...LONG_TARGETS, 'fast:at_most_once', 'long:at_most_once', 'long:at_least_once'],
    };
  },
  async run(world, length) {
    for (let round = 0; round < 2 * length; round++) {
      for (const trap of world.random.shuffle(TRAPS)) {
        const index = world.random.int(0, 1);
        const times = world.random.int(1, 3);
        world.alive[index]!.proxy.loseReplies(trap, times);
        const ms = await world.wait(150, 450);
        world.fault(`pod ${index} loses ${times} replies of ${trap.name}; then ${ms} ms`);
      }
      if (round % 2 === 0) await killOne(world);
    }
    // What nobody stepped into waits at every pod, on a busy machine a little longer.
    for (const trap of missing(world)) for (const { proxy } of world.alive) proxy.loseReplies(trap);
    await until(() => missing(world).length === 0, PATIENCE_MS);
    for (const { name } of missing(world)) world.violated('scenario', `no reply of ${name} was lost`);
  },
  /** Nobody stands still here, so a lease that ran out is that of a pod which was killed, or of a claim that was forgotten. */
  judge(world, lines) {
    const rows = lines.reduce((sum, line) => sum + (line.what === 'reclaimed' ? line.rows : 0), 0);
    const allowed = orphaned.get(world) ?? 0;
    if (rows > allowed) world.violated('scenario', `${rows - allowed} claims were forgotten until their lease ran out`);
  },
};
