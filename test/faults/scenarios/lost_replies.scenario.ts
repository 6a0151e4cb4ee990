import { setTimeout as sleep } from 'node:timers/promises';
import type { Command, Trap } from '../bench/mongo_proxy.js';
import { FAST_TARGETS, LONG_TARGETS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';

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
  { name: 'slot', matches: (command) => on(command, 'update', 'schedules') },
];

/** What pods do all the time. */
const USUAL = ['commit', 'mark', 'outcome: delete', 'claim'];

export const lostReplies: Scenario = {
  name: 'lost_replies',
  about:
    'replies of commit, insert, claim, renewal, take, mark, outcome and slot are lost; the command was carried out',
  prepare(world) {
    // More of what a lost reply could break: rows that end in a transaction, and claims that nobody may forget.
    world.defaults = {
      produce_per_s: 10,
      behaviours: { reject: 0.15, complete: 0.15 },
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
    }
    const missing = (): string[] => {
      const lost = new Set(world.pods.flatMap(({ proxy }) => proxy.lost));
      return USUAL.filter((name) => !lost.has(name));
    };
    // Traps wait for whoever steps into them, on a busy machine a little longer.
    for (let left = 100; left > 0 && missing().length > 0; left--) await sleep(100);
    for (const name of missing()) world.violated('scenario', `no reply of ${name} was lost`);
  },
  /** No pod dies or stands still here, so a lease that ran out is that of a claim which its own pod forgot. */
  judge(world, lines) {
    const rows = lines.reduce((sum, line) => sum + (line.what === 'reclaimed' ? line.rows : 0), 0);
    if (rows > 0) world.violated('scenario', `${rows} claims were forgotten until their lease ran out`);
  },
};
