/**
 * Looks at the engine's collections ten times a second, past the proxies, and tells what must never be seen there. A
 * look is one read per collection, so each rule here speaks of one document alone. It also remembers what does not stay:
 * the terms of partitions, and the slots that schedules decided about.
 */
import type { Connection } from 'mongoose';
import type { JobDoc, PartitionDoc } from '../../../src/jobs/store/jobs.schema.js';
import type { ScheduleDoc } from '../../../src/schedules/schedules.schema.js';
import type { Evidence, ScheduleStory } from './invariants.js';
import { machineMs } from './ledger.js';
import { isNew } from './pod_settings.js';

const EVERY_MS = 100;
/** Of a large backlog a look takes long, and must not become the load itself. */
const REST_PER_LOOK = 3;
const MOST_ROWS = 5_000;

type SeenRow = Omit<JobDoc, 'payload'>;

export function impossibleRow(row: SeenRow): string | undefined {
  const claim = [row.claimed_by, row.claim_token, row.lease_until, row.started_at];
  const claimed = claim.filter((field) => field !== undefined).length;
  if (!['fast', 'long'].includes(row.lane)) return 'a lane that nobody reads';
  // Every write that ends a run is fenced by it, or takes it away.
  if (row.status !== 'RUNNING' && row.cancel_requested !== undefined) return `${row.status} with a wish to cancel it`;
  switch (row.status) {
    case 'RUNNING':
      if (row.lane !== 'long') return 'RUNNING on the fast lane';
      return claimed < claim.length ? 'RUNNING without all of its claim' : undefined;
    case 'PENDING':
      if (claimed > 0 || row.running_code !== undefined) return 'PENDING with a claim';
      if (row.closed_at !== undefined) return 'PENDING but closed';
      return row.next_run_at instanceof Date ? undefined : 'PENDING without a due time';
    case 'DEAD':
    case 'DONE':
      if (claimed > 0 || row.running_code !== undefined) return `${row.status} with a claim`;
      return row.closed_at === undefined ? `${row.status} without closed_at` : undefined;
    default:
      return 'a status that nobody reads';
  }
}

export function impossiblePartition({ owner, lease_token, lease_until, inflight }: PartitionDoc): string | undefined {
  if (owner === null && (lease_token !== undefined || lease_until !== null)) return 'a lease without an owner';
  if (owner !== null && (lease_token === undefined || !lease_until)) return 'an owner without a lease';
  const targets = new Set<string>();
  for (const mark of inflight) {
    if (!mark.target || !mark.mode || !mark.token || !Array.isArray(mark.ids) || !(mark.at instanceof Date)) {
      return 'an in-flight entry of unknown shape';
    }
    if (targets.has(mark.target)) return 'two in-flight entries of one target';
    targets.add(mark.target);
  }
  // Of a target that the last owner did not know they wait for one that does.
  const known = inflight.filter(({ target }) => !isNew(target));
  if (owner === null && known.length > 0) return 'in-flight entries without an owner';
  return undefined;
}

/** Two RUNNING rows in one place of an exclusive code, as one read returned them. */
export function doubledCodes(rows: readonly SeenRow[]): string[] {
  const seen = new Set<string>();
  return rows.flatMap(({ status, running_code }) => {
    if (status !== 'RUNNING' || running_code === undefined) return [];
    if (seen.has(running_code)) return [`two RUNNING rows of ${running_code}`];
    seen.add(running_code);
    return [];
  });
}

/** Every term of every partition, in the order in which they were first seen. */
export class SeenTerms {
  readonly list: { partition: number; term: string; at: number }[] = [];
  private readonly known = new Set<string>();

  /** `at`: when the look that saw them was over. */
  see(partitions: readonly Pick<PartitionDoc, 'partition' | 'lease_token'>[], at: number): void {
    for (const { partition, lease_token } of partitions) {
      if (lease_token === undefined || this.known.has(`${partition} ${lease_token}`)) continue;
      this.known.add(`${partition} ${lease_token}`);
      this.list.push({ partition, term: lease_token, at });
    }
  }
}

type SeenSchedule = Pick<ScheduleDoc, 'code' | 'last_slot_at' | 'last_skipped_at' | 'next_run_at'>;

/** What schedules said of their slots. */
export class SeenSchedules {
  private readonly seen = new Map<string, { slots: Set<string>; skipped: Set<string>; next_run_at?: string }>();

  see(schedules: readonly SeenSchedule[]): void {
    for (const { code, last_slot_at, last_skipped_at, next_run_at } of schedules) {
      const { slots, skipped } = this.seen.get(code) ?? { slots: new Set(), skipped: new Set() };
      if (last_slot_at) slots.add(last_slot_at.toISOString());
      if (last_skipped_at) skipped.add(last_skipped_at.toISOString());
      this.seen.set(code, { slots, skipped, ...(next_run_at && { next_run_at: next_run_at.toISOString() }) });
    }
  }

  get stories(): ScheduleStory[] {
    return [...this.seen].map(([code, { slots, skipped, ...next }]) => ({
      code,
      slots: [...slots],
      skipped: [...skipped],
      ...next,
    }));
  }
}

export class Sampler {
  readonly found = new Map<string, string>();
  looks = 0;
  /** Why the last look that failed did. */
  failure: string | undefined;
  private readonly seenTerms = new SeenTerms();
  private readonly seenSchedules = new SeenSchedules();
  private timer: NodeJS.Timeout | undefined;
  private looking: Promise<void> = Promise.resolve();
  private busy = false;
  private restUntil = 0;

  constructor(private readonly connection: Connection) {}

  get terms(): Evidence['terms'] {
    return this.seenTerms.list;
  }

  get schedules(): Evidence['schedules'] {
    return this.seenSchedules.stories;
  }

  start(): void {
    this.timer = setInterval(() => {
      const began = machineMs();
      if (this.busy || began < this.restUntil) return; // a slow machine looks less often, never twice at once
      this.busy = true;
      this.looking = this.look()
        .catch((error: unknown) => void (this.failure = String(error)))
        .finally(() => {
          this.busy = false;
          this.restUntil = machineMs() + REST_PER_LOOK * (machineMs() - began - EVERY_MS);
        });
    }, EVERY_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.looking;
    await this.look();
  }

  private async look(): Promise<void> {
    const rows = await this.connection
      .collection<JobDoc>('jobs')
      .find({}, { projection: { payload: 0, history: 0, headers: 0 }, limit: MOST_ROWS })
      .toArray();
    for (const row of rows) this.note(impossibleRow(row as SeenRow), row);
    for (const fault of doubledCodes(rows as SeenRow[])) this.note(fault, {});
    const partitions = await this.connection.collection<PartitionDoc>('job_partitions').find().toArray();
    this.seenTerms.see(partitions, machineMs());
    for (const partition of partitions) this.note(impossiblePartition(partition), partition);
    const projection = { code: 1, last_slot_at: 1, last_skipped_at: 1, next_run_at: 1 } as const;
    this.seenSchedules.see(
      await this.connection.collection<ScheduleDoc>('schedules').find({}, { projection }).toArray(),
    );
    this.looks++;
  }

  private note(fault: string | undefined, document: object): void {
    if (fault !== undefined && !this.found.has(fault)) this.found.set(fault, JSON.stringify(document));
  }
}
