// The life of a deployment as its leases see it: pods boot, stay, join, leave in order, and a third of them dies at once.
// Pure: no database, no clock, one seed is one history. Answers what the database is asked and how long partitions wait.
import { JOBS_DEFAULTS, type JobsConfig } from '../../src/jobs/jobs.options.js';
import { EventQueue, seededChance, type Chance } from './event_queue.js';
import { COMMANDS, LeaseTable, noCosts, type CommandName, type Costs } from './lease_table.js';
import { SimulatedPod, type World } from './simulated_pod.js';
import { Watch, type Counts } from './watch.js';

export interface LeaseWish {
  readonly pods: number;
  readonly partitions: number;
  readonly targets: number;
  readonly seed: number;
  readonly lease?: JobsConfig['lease'];
}

export interface Rate {
  readonly mean: number;
  /** Of the busiest second. */
  readonly peak: number;
}

/** Seconds since the phase began, and how many partitions; told where the number changes. */
export type OverTime = readonly (readonly [second: number, partitions: number])[];

export interface PhaseReport extends Counts {
  readonly phase: string;
  readonly seconds: number;
  /** Alive when it ended. */
  readonly pods: number;
  readonly commands_per_s: Rate;
  readonly commands_by_name_per_s: Readonly<Partial<Record<CommandName, number>>>;
  readonly documents_written_per_s: Rate;
  readonly documents_examined_per_s: Rate;
  readonly documents_returned_per_s: Rate;
  /** Without an owner whose lease holds, by the database's rule. */
  readonly without_owner: OverTime;
  /** Without a living pod that has learned of its lease. */
  readonly unserved: OverTime;
  /** From the beginning until every partition was served again, for good; null: not in this phase. */
  readonly ms_until_all_served: number | null;
  /** From the beginning until the last partition moved. */
  readonly ms_until_settled: number;
  /** Intervals of the heartbeat until then. */
  readonly rebalancing_rounds: number;
  /** Fewest and most partitions of a living pod when it ended. */
  readonly shares: { readonly least: number; readonly most: number };
}

export interface LeaseReport {
  readonly simulation: 'leases';
  readonly pods: number;
  readonly partitions: number;
  readonly targets: number;
  readonly seed: number;
  readonly lease: JobsConfig['lease'];
  readonly phases: readonly PhaseReport[];
  /** Times that a pod got a partition which another still trusted. */
  readonly two_owners: number;
  /** At the end of every phase each partition was served, and shares differed by one at most. */
  readonly settled: boolean;
}

/** How long pods that come or go together take to do so, in ms. */
const SPREAD_MS = 10_000;
const SECOND_MS = 1_000;
/** Longer than a lease, the heartbeats after it, and what they still move. */
const PHASE_SECONDS = 120;

export function simulateLeases(wish: LeaseWish): LeaseReport {
  const lease = wish.lease ?? JOBS_DEFAULTS.lease;
  const deployment = new Deployment(wish, lease);
  const tenth = Math.max(1, Math.floor(wish.pods / 10));
  const phases = [
    deployment.phase('boot', () => deployment.boot(wish.pods)),
    deployment.phase('steady', () => undefined),
    deployment.phase('join a tenth', () => deployment.boot(tenth)),
    deployment.phase('leave a tenth', () => deployment.leave(tenth)),
    deployment.phase('a third dies', () => deployment.kill(Math.floor(deployment.alive().length / 3))),
    deployment.phase('steady again', () => undefined),
  ];
  const { pods, partitions, targets, seed } = wish;
  const even = ({ shares, unserved }: PhaseReport): boolean =>
    shares.most - shares.least <= 1 && (unserved.at(-1)?.[1] ?? 0) === 0;
  return {
    simulation: 'leases',
    pods,
    partitions,
    targets,
    seed,
    lease,
    phases,
    two_owners: deployment.watch.twoOwners,
    settled: phases.every(even),
  };
}

class Deployment {
  readonly watch: Watch;
  private readonly events = new EventQueue();
  private readonly chance: Chance;
  private readonly table: LeaseTable;
  private readonly world: World;
  private pods: SimulatedPod[] = [];
  private tokens = 0;

  constructor(
    private readonly wish: LeaseWish,
    private readonly lease: JobsConfig['lease'],
  ) {
    const { events } = this;
    this.chance = seededChance(wish.seed);
    this.table = new LeaseTable(wish.partitions, wish.targets);
    this.watch = new Watch(wish.partitions, () => events.now);
    const { chance, table, watch } = this;
    this.world = { events, chance, table, watch, lease, nextToken: () => ++this.tokens };
  }

  alive(): SimulatedPod[] {
    return this.pods.filter((pod) => pod.state === 'running');
  }

  boot(count: number): void {
    for (let each = 0; each < count; each++) {
      const pod = new SimulatedPod(this.newName(), this.wish.partitions, this.world);
      this.pods.push(pod);
      this.events.after(this.chance() * SPREAD_MS, () => pod.start());
    }
  }

  leave(count: number): void {
    for (const pod of this.some(count)) this.events.after(this.chance() * SPREAD_MS, () => pod.leave());
  }

  kill(count: number): void {
    for (const pod of this.some(count)) pod.die();
  }

  phase(phase: string, begin: () => void): PhaseReport {
    const began = this.events.now;
    this.watch.startPhase();
    begin();
    const unserved = new Curve();
    const withoutOwner = new Curve();
    const seconds: Costs[] = [];
    for (let second = 0; second <= PHASE_SECONDS; second++) {
      this.table.costs = noCosts();
      this.events.runUntil(began + second * SECOND_MS);
      if (second > 0) seconds.push(this.table.costs);
      unserved.add(second, this.watch.unservedCount);
      withoutOwner.add(second, this.table.withoutOwner(this.events.now));
    }
    this.pods = this.alive();
    const shares = this.pods.map((pod) => pod.held.size);
    const { allServedAt, lastMoveAt, counts } = this.watch;
    return {
      phase,
      seconds: PHASE_SECONDS,
      pods: this.pods.length,
      ...costsOf(seconds),
      ...counts,
      without_owner: withoutOwner.points,
      unserved: unserved.points,
      ms_until_all_served: allServedAt === undefined ? null : Math.round(allServedAt - began),
      ms_until_settled: Math.round(lastMoveAt - began),
      rebalancing_rounds: Math.ceil((lastMoveAt - began) / this.lease.heartbeat_ms),
      shares: { least: Math.min(...shares), most: Math.max(...shares) },
    };
  }

  private some(count: number): SimulatedPod[] {
    const shuffled = this.alive().map((pod) => ({ pod, at: this.chance() }));
    return shuffled
      .sort((a, b) => a.at - b.at)
      .slice(0, count)
      .map(({ pod }) => pod);
  }

  /** As names are: in no order, so that a newcomer shifts the ranks of others. */
  private newName(): string {
    const hex = Math.floor(this.chance() * 2 ** 32).toString(16);
    return `pod-${hex.padStart(8, '0')}-${this.pods.length}`;
  }
}

/** A number over time, kept where it changes. */
class Curve {
  readonly points: [number, number][] = [];

  add(second: number, value: number): void {
    if (this.points.at(-1)?.[1] !== value) this.points.push([second, value]);
  }
}

function costsOf(
  seconds: readonly Costs[],
): Pick<
  PhaseReport,
  | 'commands_per_s'
  | 'commands_by_name_per_s'
  | 'documents_written_per_s'
  | 'documents_examined_per_s'
  | 'documents_returned_per_s'
> {
  const total = (costs: Costs): number => COMMANDS.reduce((sum, name) => sum + costs.commands[name], 0);
  const named = COMMANDS.map((name) => [name, rateOf(seconds.map(({ commands }) => commands[name])).mean] as const);
  return {
    commands_per_s: rateOf(seconds.map(total)),
    commands_by_name_per_s: Object.fromEntries(named.filter(([, mean]) => mean > 0)),
    documents_written_per_s: rateOf(seconds.map((costs) => costs.documents_written)),
    documents_examined_per_s: rateOf(seconds.map((costs) => costs.documents_examined)),
    documents_returned_per_s: rateOf(seconds.map((costs) => costs.documents_returned)),
  };
}

function rateOf(perSecond: readonly number[]): Rate {
  const mean = perSecond.reduce((sum, value) => sum + value, 0) / perSecond.length;
  return { mean: Math.round(mean * 10) / 10, peak: Math.max(...perSecond) };
}
