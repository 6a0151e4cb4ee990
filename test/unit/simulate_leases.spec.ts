/** The simulation of leases: one seed is one history, and what it tells of a deployment holds for any of them. */
import { beforeAll, describe, expect, it } from '@jest/globals';
import { parseArguments } from '../../scripts/simulate/arguments.js';
import { EventQueue, seededChance } from '../../scripts/simulate/event_queue.js';
import { LeaseTable } from '../../scripts/simulate/lease_table.js';
import { simulateLeases, type LeaseReport, type PhaseReport } from '../../scripts/simulate/leases.js';
import { asText } from '../../scripts/simulate/report.js';
import { SimulatedPod, type World } from '../../scripts/simulate/simulated_pod.js';
import { Watch } from '../../scripts/simulate/watch.js';
import { JOBS_DEFAULTS } from '../../src/jobs/jobs.options.js';

const WISH = { pods: 30, partitions: 128, targets: 0, seed: 7 };
const { ttl_ms, heartbeat_ms } = JOBS_DEFAULTS.lease;

const phaseOf = (report: LeaseReport, name: string): PhaseReport => report.phases.find(({ phase }) => phase === name)!;

describe('a deployment', () => {
  let report: LeaseReport;
  beforeAll(() => {
    report = simulateLeases(WISH);
  });

  it('is the same for the same seed, and another for another', () => {
    expect(simulateLeases(WISH)).toEqual(report);
    expect(simulateLeases({ ...WISH, seed: 8 }).phases).not.toEqual(report.phases);
  });

  it('runs on the default numbers of the engine', () => expect(report.lease).toEqual(JOBS_DEFAULTS.lease));

  it('asks per heartbeat for what the lease service asks: five commands, and the time with every third', () => {
    const { heartbeats, seconds, commands_by_name_per_s: commands } = phaseOf(report, 'steady');
    const beats = heartbeats / seconds;
    for (const name of ['renew', 'beat', 'live_pods', 'owned', 'pauses'] as const) {
      expect(commands[name]).toBeCloseTo(beats, 0);
    }
    expect(commands.hello).toBeCloseTo(beats / 3, 0);
    expect(Object.keys(commands)).toHaveLength(6);
  });

  it('looks at what is its own, not at every partition, while no share is short', () => {
    const { documents_examined_per_s: examined, pods } = phaseOf(report, 'steady');
    expect(examined.mean).toBeLessThan((2 * 128 + pods * (pods + 1)) / (heartbeat_ms / 1_000) + 1);
    const { commands_by_name_per_s: moving } = phaseOf(report, 'a third dies');
    expect(moving.free).toBeGreaterThan(0);
  });

  it('writes while idle one document per partition and pod with every heartbeat', () => {
    const { documents_written_per_s: written } = phaseOf(report, 'steady');
    expect(written.mean).toBeCloseTo((128 + 30) / (heartbeat_ms / 1_000), 0);
  });

  it('moves nothing while nobody comes or goes', () => {
    for (const name of ['steady', 'steady again']) {
      const { taken, given_back, lost, ms_until_settled, unserved } = phaseOf(report, name);
      expect({ taken, given_back, lost, ms_until_settled, unserved }).toEqual({
        taken: 0,
        given_back: 0,
        lost: 0,
        ms_until_settled: 0,
        unserved: [[0, 0]],
      });
    }
  });

  it('moves few partitions when a tenth joins or leaves', () => {
    const share = Math.ceil(128 / 30);
    expect(phaseOf(report, 'join a tenth').taken).toBeLessThanOrEqual(3 * share + 30);
    expect(phaseOf(report, 'leave a tenth').taken).toBeLessThanOrEqual(3 * share + 30);
  });

  it('serves what a dead third left only after its leases, and within a heartbeat, or two where pods collided', () => {
    const { ms_until_all_served, unserved, taken, lost } = phaseOf(report, 'a third dies');
    expect(unserved[0]![1]).toBeGreaterThan(0);
    expect(unserved[1]![0] * 1_000).toBeGreaterThanOrEqual(ttl_ms - heartbeat_ms);
    expect(ms_until_all_served).toBeLessThanOrEqual(ttl_ms + 2 * heartbeat_ms + 1_000);
    expect(taken).toBe(unserved[0]![1]);
    expect(lost).toBe(0);
  });

  it('has more without a server than without an owner while the leases of the dead still hold', () => {
    const { unserved, without_owner } = phaseOf(report, 'a third dies');
    expect(without_owner[0]).toEqual([0, 0]);
    expect(unserved[0]![1]).toBeGreaterThan(0);
  });

  it('is told as text', () => {
    expect(asText(report)).toContain('== a third dies: 20 pods at its end');
    expect(asText(report)).toContain('two owners of one partition: 0');
  });
});

describe.each([
  { pods: 3, partitions: 1, seed: 1 },
  { pods: 5, partitions: 64, seed: 2 },
  { pods: 64, partitions: 64, seed: 3 },
  { pods: 90, partitions: 64, seed: 4 },
  { pods: 40, partitions: 1_000, seed: 5 },
])('$pods pods and $partitions partitions', ({ pods, partitions, seed }) => {
  const report = simulateLeases({ pods, partitions, targets: 0, seed });

  it('never have two owners of one', () => expect(report.two_owners).toBe(0));

  it('end every phase with all served, by the database and by the pods, and shares that differ by one at most', () => {
    for (const { unserved, without_owner, shares, ms_until_all_served } of report.phases) {
      expect(unserved.at(-1)![1]).toBe(0);
      expect(without_owner.at(-1)![1]).toBe(0);
      expect(shares.most - shares.least).toBeLessThanOrEqual(1);
      expect(ms_until_all_served).not.toBeNull();
    }
    expect(report.settled).toBe(true);
  });
});

describe('leases shorter than what their heartbeats need', () => {
  it('are told: partitions change hands and the shares never settle', () => {
    const lease = { ttl_ms: 5_000, heartbeat_ms: 10_000, margin_ms: 100, worker_ttl_ms: 30_000 };
    const report = simulateLeases({ pods: 10, partitions: 32, targets: 0, seed: 1, lease });
    expect(phaseOf(report, 'steady').lost).toBeGreaterThan(0);
  });
});

describe('the table', () => {
  const take = { partitions: [0], now: 1_000, until: 31_000 };

  it('gives a free partition to one of two, and again only when the lease is over', () => {
    const table = new LeaseTable(1);
    table.takePartitions({ ...take, owner: 'a', lease_token: 1 });
    table.takePartitions({ ...take, owner: 'b', lease_token: 2 });
    expect(table.readTerm({ partitions: [0], owner: 'a', lease_token: 1 })).toHaveLength(1);
    expect(table.readTerm({ partitions: [0], owner: 'b', lease_token: 2 })).toHaveLength(0);
    table.takePartitions({ ...take, owner: 'b', lease_token: 3, now: 31_000, until: 61_000 });
    expect(table.readTerm({ partitions: [0], owner: 'b', lease_token: 3 })).toHaveLength(1);
  });

  it('renews no lease that is over, and lets nobody release another term', () => {
    const table = new LeaseTable(1);
    table.takePartitions({ ...take, owner: 'a', lease_token: 1 });
    table.renewLeases({ owner: 'a', partitions: [0], now: 31_000 }, 61_000);
    expect(table.withoutOwner(31_000)).toBe(1);
    table.releasePartition({ partition: 0, owner: 'a', lease_token: 9 });
    expect(table.withoutOwner(30_999)).toBe(0);
    table.releasePartition({ partition: 0, owner: 'a', lease_token: 1 });
    expect(table.withoutOwner(2_000)).toBe(1);
  });

  it('counts what a command looks at, answers and writes', () => {
    const table = new LeaseTable(4, 3);
    table.takePartitions({ ...take, partitions: [0, 1], owner: 'a', lease_token: 1 });
    expect(table.readOwned({ owner: 'a', partitions: [0, 1], now: 2_000 })).toHaveLength(2);
    expect(table.readFree(2_000)).toEqual([2, 3]);
    table.listTargets();
    // Two to take, two owned ones, all four for the free ones, three pauses.
    expect(table.costs).toMatchObject({ documents_written: 2, documents_examined: 11, documents_returned: 7 });
    expect(table.costs.commands).toMatchObject({ take: 1, owned: 1, free: 1, pauses: 1, renew: 0 });
  });
});

describe('the watch', () => {
  it('sees a partition that a second pod got while the first still trusted it, and none that it had given up', () => {
    const watch = new Watch(1, () => 0);
    const holder = (trusting: boolean) => ({ id: '', trusts: () => trusting });
    watch.served(0, holder(false));
    watch.served(0, holder(true));
    expect(watch.twoOwners).toBe(0);
    watch.served(0, holder(true));
    expect(watch.twoOwners).toBe(1);
  });

  it('takes no partition from its new owner because the old one hears late that it lost it', () => {
    const watch = new Watch(1, () => 0);
    const [old, fresh] = [
      { id: 'old', trusts: () => false },
      { id: 'fresh', trusts: () => true },
    ];
    watch.served(0, old);
    watch.served(0, fresh);
    watch.unserved(0, old, 'lost');
    expect(watch.unservedCount).toBe(0);
    expect(watch.counts.lost).toBe(1);
  });
});

describe('pods', () => {
  const worldOf = (partitions: number, seed = 5): World => {
    const events = new EventQueue();
    let tokens = 0;
    return {
      events,
      chance: seededChance(seed),
      table: new LeaseTable(partitions),
      watch: new Watch(partitions, () => events.now),
      lease: JOBS_DEFAULTS.lease,
      nextToken: () => ++tokens,
    };
  };

  it('that boot at the same moment want the same partitions, and each goes to one of them', () => {
    let inVain = 0;
    for (let seed = 1; seed <= 20; seed++) {
      const world = worldOf(60, seed);
      const pods = ['a', 'b', 'c'].map((id) => new SimulatedPod(id, 60, world));
      for (const pod of pods) pod.start();
      world.events.runUntil(1_000);
      inVain += world.watch.counts.taken_in_vain;
      expect(pods.reduce((sum, pod) => sum + pod.held.size, 0)).toBe(60 - world.watch.unservedCount);
      expect(world.watch.twoOwners).toBe(0);
    }
    expect(inVain).toBeGreaterThan(0);
  });

  it('that die in the middle of a heartbeat send nothing more', () => {
    const world = worldOf(8);
    const pod = new SimulatedPod('a', 8, world);
    pod.start();
    world.events.runUntil(6);
    pod.die();
    world.events.runUntil(60_000);
    expect(world.table.costs.commands).toMatchObject({ hello: 1, pauses: 0 });
    expect(pod.held.size).toBe(0);
  });

  it('that leave between two heartbeats give back at once and are not asked again', () => {
    const world = worldOf(8);
    const pod = new SimulatedPod('a', 8, world);
    pod.start();
    world.events.runUntil(5_000);
    pod.leave();
    world.events.runUntil(5_100);
    expect(pod.state).toBe('left');
    expect(world.table.withoutOwner(5_100)).toBe(8);
    const { renew } = world.table.costs.commands;
    world.events.runUntil(60_000);
    expect(world.table.costs.commands.renew).toBe(renew);
  });
});

describe('simulated time', () => {
  it('runs what comes first first, in order of making at the same time, and nothing beyond its end', () => {
    const events = new EventQueue();
    const ran: string[] = [];
    events.after(5, () => ran.push('d'));
    events.after(1, () => {
      ran.push(`a at ${events.now}`);
      events.after(2, () => ran.push('c'));
    });
    events.after(1, () => ran.push('b'));
    events.runUntil(4);
    expect(ran).toEqual(['a at 1', 'b', 'c']);
    expect(events.now).toBe(4);
    events.runUntil(5);
    expect(ran).toHaveLength(4);
  });

  it('keeps the order of making among many at the same time', () => {
    const events = new EventQueue();
    const ran: number[] = [];
    const all = Array.from({ length: 50 }, (_, each) => each);
    for (const each of all) events.after(1, () => ran.push(each));
    events.runUntil(1);
    expect(ran).toEqual(all);
  });

  it('keeps its order over many', () => {
    const events = new EventQueue();
    const chance = seededChance(3);
    const seen: number[] = [];
    for (let each = 0; each < 500; each++) events.after(chance() * 100, () => seen.push(events.now));
    events.runUntil(100);
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(seen).toHaveLength(500);
  });
});

describe('the arguments', () => {
  it('have defaults', () => {
    expect(parseArguments(['leases'])).toEqual({ pods: 1_000, partitions: 4_096, targets: 0, seed: 1, json: false });
    expect(parseArguments(['leases', '--pods', '9', '--partitions', '8', '--seed', '0', '--json'])).toMatchObject({
      pods: 9,
      partitions: 8,
      seed: 0,
      json: true,
    });
  });

  it.each([
    [[]],
    [['lease']],
    [['leases', '--pods']],
    [['leases', '--pods', '2']],
    [['leases', '--pods', '']],
    [['leases', '--partitions', '4097']],
    [['leases', '--seed', '1.5']],
    [['leases', '--fast']],
  ])('%j are refused', (words) => expect(parseArguments(words)).toHaveProperty('fault'));
});
