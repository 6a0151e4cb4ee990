// One pod as the leases know it: the steps of lanes/partition_lease.service.ts and of the heartbeat loop, command by
// command, with no rows to run. A command arrives after half a round trip and is answered after the other half, so pods
// interleave between any two commands of one another. A pod that dies sends nothing more; what it had sent arrives.
import { fairShare } from '../../src/jobs/policy/partition.js';
import type { JobsConfig } from '../../src/jobs/jobs.options.js';
import type { Chance, EventQueue } from './event_queue.js';
import type { LeaseTable, Term } from './lease_table.js';
import type { Watch } from './watch.js';

export interface World {
  readonly events: EventQueue;
  readonly chance: Chance;
  readonly table: LeaseTable;
  readonly watch: Watch;
  readonly lease: JobsConfig['lease'];
  /** Counts the tokens given out; every take has a new one. */
  nextToken(): number;
}

export interface Holding {
  readonly term: Term;
  /** Until when the pod trusts its lease, in its own time. */
  deadline: number;
}

/** A command on its way; the generator goes on with its answer. */
type Steps = Generator<() => unknown, void, unknown>;

/** As in the lease service: the database's time is asked for with every third heartbeat. */
const BEATS_PER_SYNC = 3;
/** A command and its answer take between these, in ms. */
const ROUND_TRIP_MS = [1, 4] as const;
/** How far a pod's idea of the database's time may be off, in ms. */
const CLOCK_ERROR_MS = 50;
const DAY_MS = 24 * 3_600_000;

function* ask<T>(run: () => T): Generator<() => unknown, T, unknown> {
  return (yield run) as T;
}

export class SimulatedPod {
  readonly held = new Map<number, Holding>();
  state: 'running' | 'left' | 'dead' = 'running';
  private beatsUntilSync = 0;
  private beating = false;
  private leaving = false;
  private readonly clockError: number;

  constructor(
    readonly id: string,
    private readonly partitions: number,
    private readonly world: World,
  ) {
    this.clockError = (world.chance() * 2 - 1) * CLOCK_ERROR_MS;
  }

  start(): void {
    if (this.leaving || this.state !== 'running') return;
    this.beating = true;
    this.drive(this.heartbeat(), () => {
      this.beating = false;
      if (this.leaving) this.goAway();
      else this.world.events.after(this.world.lease.heartbeat_ms, () => this.start());
    });
  }

  /** Gives back in order what it has, at once or when the heartbeat under way has ended. */
  leave(): void {
    this.leaving = true;
    if (!this.beating) this.goAway();
  }

  die(): void {
    this.state = 'dead';
    for (const partition of this.held.keys()) this.world.watch.unserved(partition, this);
    this.held.clear();
  }

  /** May it still start rows of this partition, by all it knows? */
  trusts(partition: number): boolean {
    const holding = this.held.get(partition);
    return holding !== undefined && holding.deadline - this.world.lease.margin_ms > this.world.events.now;
  }

  private goAway(): void {
    this.drive(this.farewell(), () => (this.state = 'left'));
  }

  private now(): number {
    return this.world.events.now + this.clockError;
  }

  private drive(steps: Steps, done: () => void): void {
    const { events, chance } = this.world;
    const go = (answer: unknown): void => {
      if (this.state === 'dead') return;
      const step = steps.next(answer);
      if (step.done) return done();
      const half = (ROUND_TRIP_MS[0] + chance() * (ROUND_TRIP_MS[1] - ROUND_TRIP_MS[0])) / 2;
      events.after(half, () => {
        const result = step.value();
        events.after(half, () => go(result));
      });
    };
    go(undefined);
  }

  private *heartbeat(): Steps {
    const { table, lease, watch, events } = this.world;
    if (this.beatsUntilSync === 0) yield* ask(() => table.hello());
    this.beatsUntilSync = (this.beatsUntilSync || BEATS_PER_SYNC) - 1;
    const asked = events.now;
    const now = this.now();
    const until = now + lease.ttl_ms;
    const mine = { owner: this.id, partitions: [...this.held.keys()], now };
    if (mine.partitions.length > 0) yield* ask(() => table.renewLeases(mine, until));
    yield* ask(() => table.beatHeart(this.id, now));
    const pods = yield* ask(() => table.livePods(now - lease.worker_ttl_ms));
    const owned = mine.partitions.length > 0 ? yield* ask(() => table.readOwned(mine)) : [];
    this.reconcile(new Map(owned.map((row) => [row.partition, row])), asked + lease.ttl_ms, until);
    const share = fairShare(this.partitions, pods, this.id);
    const surplus = [...this.held.values()].slice(0, Math.max(0, this.held.size - share));
    const missing = share - this.held.size;
    const free = missing > 0 ? yield* ask(() => table.readFree(now)) : [];
    const taken = free.length > 0 ? yield* this.take(this.pick(free, missing)) : 0;
    yield* this.release(surplus);
    yield* ask(() => table.listTargets());
    watch.beat(taken + surplus.length > 0);
  }

  private *farewell(): Steps {
    const { table } = this.world;
    yield* this.release([...this.held.values()]);
    // Once when the stop begins and once when all has ended.
    for (let time = 0; time < 2; time++) yield* ask(() => table.removeWorker(this.id, this.now() - DAY_MS));
  }

  private reconcile(
    rows: ReadonlyMap<number, { lease_token?: number; lease_until: number | null }>,
    deadline: number,
    until: number,
  ): void {
    for (const [partition, holding] of this.held) {
      const row = rows.get(partition);
      if (row?.lease_token !== holding.term.lease_token) this.drop(partition, 'lost');
      else if (row.lease_until !== null && row.lease_until >= until) holding.deadline = deadline;
    }
  }

  private *take(partitions: number[]): Generator<() => unknown, number, unknown> {
    const { table, lease, watch, events } = this.world;
    const asked = events.now;
    const now = this.now();
    const lease_token = this.world.nextToken();
    const take = { partitions, owner: this.id, lease_token, now, until: now + lease.ttl_ms };
    yield* ask(() => table.takePartitions(take));
    const won = yield* ask(() => table.readTerm({ partitions, owner: this.id, lease_token }));
    for (const term of won) {
      this.held.set(term.partition, { term, deadline: asked + lease.ttl_ms });
      watch.served(term.partition, this);
    }
    watch.tried(partitions.length, won.length);
    return won.length;
  }

  /** Side by side, as the service does; nothing runs here, so all of it is dry. */
  private *release(surplus: readonly Holding[]): Generator<() => unknown, void, unknown> {
    if (surplus.length === 0) return;
    for (const { term } of surplus) this.drop(term.partition, 'released');
    yield* ask(() => surplus.forEach(({ term }) => this.world.table.releasePartition(term)));
  }

  private drop(partition: number, why: 'lost' | 'released'): void {
    this.held.delete(partition);
    this.world.watch.unserved(partition, this, why);
  }

  /** At random, as the service does, so that pods that boot together do not all try the same ones. */
  private pick(free: readonly number[], count: number): number[] {
    const shuffled = free.map((partition) => ({ partition, at: this.world.chance() })).sort((a, b) => a.at - b.at);
    return shuffled.slice(0, count).map(({ partition }) => partition);
  }
}
