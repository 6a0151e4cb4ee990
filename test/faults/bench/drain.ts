/**
 * After the healing: everything that waits must run, and something must move all the time. What moves is judged by
 * `DrainWatch`, which is pure; slots of schedules come whatever happens and count as no movement.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { SUSPECT_CRASHES } from '../../../src/jobs/policy/takeover.js';
import { ledgerBytes, machineMs, readSlots, type LedgerLine } from './ledger.js';
import { LEASE_MS } from './pod_settings.js';
import type { World } from './world.js';

/** Whatever happened, something moves again within three leases after the healing, and goes on moving. */
export const STALL_MS = 3 * LEASE_MS;
/** Of a round of length 1. */
const DRAIN_MS = 90_000;
const SETTLE_MS = 6 * LEASE_MS;

export interface DrainLook {
  at: number;
  /** Rows that wait or run, those of schedules left out. */
  waiting: number;
  /** What the pods' ledgers hold, lines of slots left out. */
  bytes: number;
  /** All that wait are suspects of crashes whose turn has not come: the engine makes them wait for longer than a stall. */
  resting: boolean;
  /** Claims whose lease is over by the database's clock, by name. */
  expired: readonly string[];
  /** A slot that came due after the healing has run. */
  slotRan: boolean;
}

export type DrainState = { is: 'going' } | { is: 'over' } | { is: 'stuck'; why: string };

export class DrainWatch {
  /** Longest time without movement while rows waited, in ms. */
  stallMs = 0;
  /** When nothing waited any more, in ms after the healing. */
  drainedMs: number | undefined;
  private movedAt: number;
  private waiting = -1;
  private bytes = -1;
  private expiredSince = new Map<string, number>();

  constructor(
    private readonly began: number,
    private readonly limitMs: number,
  ) {
    this.movedAt = began;
  }

  look(look: DrainLook): DrainState {
    const { at, waiting, bytes, resting, expired, slotRan } = look;
    if (waiting !== this.waiting || bytes !== this.bytes || resting) this.movedAt = at;
    [this.waiting, this.bytes] = [waiting, bytes];
    if (waiting > 0) this.stallMs = Math.max(this.stallMs, at - this.movedAt);
    this.drainedMs = waiting > 0 ? undefined : (this.drainedMs ?? at - this.began);
    this.expiredSince = new Map(expired.map((claim) => [claim, this.expiredSince.get(claim) ?? at]));
    if (waiting === 0 && expired.length === 0 && slotRan) return { is: 'over' };
    return this.stuck(look);
  }

  private stuck({ at, waiting, expired, slotRan }: DrainLook): DrainState {
    const forgotten = [...this.expiredSince].filter(([, since]) => at - since > STALL_MS).map(([claim]) => claim);
    if (forgotten.length > 0) return { is: 'stuck', why: `nobody takes expired claims back: ${forgotten.join(', ')}` };
    if (at - this.movedAt <= STALL_MS && at - this.began <= this.limitMs) return { is: 'going' };
    if (waiting > 0) return { is: 'stuck', why: `${waiting} rows still wait` };
    if (expired.length > 0) return { is: 'stuck', why: `claims of schedules are expired: ${expired.join(', ')}` };
    return { is: 'stuck', why: slotRan ? 'nothing moves' : 'no slot of tick ran' };
  }
}

export interface Drained {
  ms: number;
  stallMs: number;
}

const WAITING = { status: { $in: ['PENDING', 'RUNNING'] }, target: { $not: /^schedule:/ } } as const;

/** Waits until nothing waits or runs any more, and schedules run. What stays is told with the rows themselves. */
export async function drain(world: World, length: number): Promise<Drained> {
  const began = machineMs();
  const watch = new DrainWatch(began, DRAIN_MS * length);
  const clock = await databaseClock(world);
  let slotRan = false;
  for (;;) {
    const waiting = await world.jobs.countDocuments(WAITING as object);
    const resting = waiting > 0 && waiting === (await restingSuspects(world, clock()));
    const expired = await expiredClaims(world, clock());
    slotRan ||= waiting === 0 && newSlotRan(readSlots(world.folder), began);
    const bytes = ledgerBytes(world.folder);
    const state = watch.look({ at: machineMs(), waiting, bytes, resting, expired, slotRan });
    const ms = Math.round(machineMs() - began);
    if (state.is === 'stuck') world.violated('drain', await stuckText(world, state.why, ms));
    if (state.is !== 'going') return { ms: Math.round(watch.drainedMs ?? ms), stallMs: watch.stallMs };
    await sleep(waiting > 5_000 ? 1_000 : 100); // a count of many is a load of its own
  }
}

async function stuckText(world: World, why: string, ms: number): Promise<string> {
  const rows = await world.jobs.find(WAITING as object, { limit: 5, projection: { payload: 0 } }).toArray();
  return `${ms} ms after the healing: ${why}; ${JSON.stringify(rows)}`;
}

/** What pods take for the database's time, measured once: its clock does not jump while pods run. */
async function databaseClock(world: World): Promise<() => Date> {
  const asked = machineMs();
  const { localTime } = (await world.connection.db!.command({ hello: 1 })) as unknown as { localTime: Date };
  return () => new Date(localTime.getTime() + world.databaseClockMs + (machineMs() - asked));
}

/** Of the long lane they run one at a time, the others look again after 10 s. */
const restingSuspects = (world: World, now: Date): Promise<number> =>
  world.jobs.countDocuments({
    status: 'PENDING',
    lane: 'long',
    crashes: { $gte: SUSPECT_CRASHES },
    next_run_at: { $gt: now },
    target: { $not: /^schedule:/ },
  } as object);

async function expiredClaims(world: World, now: Date): Promise<string[]> {
  const projection = { target: 1, lease_until: 1 } as const;
  const rows = await world.jobs.find({ status: 'RUNNING', lease_until: { $lte: now } }, { projection }).toArray();
  return rows.map((row) => `${row._id.toHexString()} of ${row.target} until ${row.lease_until!.toISOString()}`);
}

/** A slot of the schedule that every pod has: first started after `since`, and ended well. */
export function newSlotRan(lines: readonly LedgerLine[], since: number): boolean {
  const ofTick = lines.filter((line) => line.what === 'start' && line.target === 'schedule:tick');
  const old = new Set(ofTick.flatMap((line) => (line.at <= since && line.what === 'start' ? [line.n] : [])));
  return lines.some(
    (line) =>
      line.what === 'end' && line.result === 'ok' && line.n.startsWith('tick@') && line.at > since && !old.has(line.n),
  );
}

/** Partitions of pods that were killed last are nobody's until their lease is over: only then can a stop give all back. */
export async function settle(world: World): Promise<void> {
  const partitions = world.connection.collection('job_partitions');
  const read = async (): Promise<Share[]> => {
    const found = await partitions.find({}, { projection: { _id: 0, partition: 1, owner: 1 } }).toArray();
    return found as unknown as Share[];
  };
  const pids = (): string[] => world.alive.map((pod) => pod.pid);
  const free = await freePartitions({ read, pids, forMs: SETTLE_MS });
  if (free.length > 0)
    world.violated('owner', `${SETTLE_MS} ms after the drain nobody who lives owns ${JSON.stringify(free)}`);
}

export interface Share {
  partition: number;
  owner: string | null;
}

/** Waits until the living own everything; answers what is left when the time is over. */
export async function freePartitions(of: {
  read(): Promise<Share[]>;
  pids(): string[];
  forMs: number;
}): Promise<Share[]> {
  const until = machineMs() + of.forMs;
  for (;;) {
    const alive = new Set(of.pids());
    const free = (await of.read()).filter(({ owner }) => !alive.has(String(owner).split(':')[1] ?? ''));
    if (free.length === 0 || machineMs() >= until) return free;
    await sleep(100);
  }
}
