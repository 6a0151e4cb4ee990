/**
 * Keeps the claims of running rows: renews all of them in one update, notices which are lost, carries cancel requests to
 * handlers and their progress to admins.
 *
 * The database decides whose a row is. A renewal that matches fewer rows than it named says that some are not ours any
 * more (reclaimed after a stall, or ended by an admin): their handlers are told to stop, and whatever they still end with
 * matches nothing. While the database cannot be asked, the monotonic deadline counted from before the last renewal
 * decides the same. Renewals go on until the last handler has ended, through a shutdown too.
 *
 * No look waits for a command that hangs (a connection that died without a word does for a quarter of an hour): the next
 * one asks again, on another connection. An answer that comes later still counts, from when it was asked for.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { within } from '../../common/utils/within.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { claimId, findCancelRequests, findOwned, renewClaims, writeProgress } from '../store/long_lane.store.js';
import { rowRef } from './row_ref.js';
import type { RunningRow } from './running_row.js';

/** Least time that a command gets, in ms, however soon a claim runs out. */
const LEAST_ANSWER_MS = 1_000;

@Injectable()
export class ClaimKeeper {
  private readonly running = new Map<string, RunningRow>();
  private renewAt = 0;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {
    events.on((event) => {
      if (event.type === 'cancel_requested') this.running.get(event.id)?.callOff('cancelled', CANCELLED);
    });
  }

  /** Rows whose handlers run, or whose outcomes are still to be written. */
  rows(): RunningRow[] {
    return [...this.running.values()];
  }

  has(id: string): boolean {
    return this.running.has(id);
  }

  add(row: RunningRow): void {
    if (this.running.size === 0) this.renewAt = this.clock.monotonic() + this.config.long_lane.renew_ms;
    this.running.set(row.id, row);
  }

  remove(row: RunningRow): void {
    if (this.running.get(row.id) === row) this.running.delete(row.id);
  }

  /**
   * One look: a renewal when it is time, cancel requests, progress. Nothing runs: no command. Answers the wait in ms; throws
   * when a command fails, or does not come back in time.
   */
  async look(): Promise<number> {
    const { renew_ms, cancel_check_ms } = this.config.long_lane;
    try {
      if (this.running.size > 0) {
        if (this.clock.monotonic() >= this.renewAt) await this.inTime('renewal', this.renew());
        await this.inTime('cancel requests', this.carryCancels());
        await this.inTime('progress', this.carryProgress());
      }
    } finally {
      this.giveUpOverdue();
    }
    return Math.min(renew_ms, cancel_check_ms);
  }

  /** Waits for a part of the renewal interval, so that several more can be tried, and never past the end of a claim. */
  private async inTime(what: string, work: Promise<void>): Promise<void> {
    const now = this.clock.monotonic();
    const ends = this.rows().flatMap((row) =>
      row.ended || row.calledOff === 'claim_lost' ? [] : [this.overdueAt(row)],
    );
    const soonest = Math.ceil(Math.min(...ends) - now);
    const ms = Math.max(LEAST_ANSWER_MS, Math.min(this.config.long_lane.renew_ms / 3, soonest));
    if (!(await within(this.clock, ms, work))) throw new Error(`claims: ${what}: no answer within ${ms} ms`);
  }

  private async renew(): Promise<void> {
    const { lease_ms, renew_ms } = this.config.long_lane;
    const rows = this.rows();
    const asked = this.clock.monotonic();
    const until = new Date(this.clock.now().getTime() + lease_ms);
    const docs = rows.map(({ row }) => row);
    const kept = await renewClaims(this.collections, docs, until);
    const owned = kept === rows.length ? undefined : await findOwned(this.collections, docs);
    this.renewAt = asked + renew_ms; // not before: what the database could not tell is asked again with the next look
    for (const row of rows) {
      if (!owned || owned.has(claimId(row.row))) row.deadline = Math.max(row.deadline, asked + lease_ms);
      else this.lose(row);
    }
  }

  private async carryCancels(): Promise<void> {
    const open = this.rows().filter((row) => !row.ended && row.calledOff === undefined);
    if (open.length === 0) return;
    const docs = open.map(({ row }) => row);
    const cancelled = await findCancelRequests(this.collections, docs);
    for (const row of open) if (cancelled.has(claimId(row.row))) row.callOff('cancelled', CANCELLED);
  }

  private async carryProgress(): Promise<void> {
    const at = this.clock.now();
    const reports = this.rows().flatMap((running) => {
      const report = running.takeReport();
      return report ? [{ row: running.row, progress: { ...report, at } }] : [];
    });
    if (reports.length > 0) await writeProgress(this.collections, reports);
  }

  /** No renewal came through in time: whoever asks the database may have reclaimed the row. */
  private giveUpOverdue(): void {
    const now = this.clock.monotonic();
    for (const row of this.rows()) if (this.overdueAt(row) <= now) this.lose(row);
  }

  private overdueAt(row: RunningRow): number {
    return row.deadline - this.config.lease.margin_ms;
  }

  private lose(row: RunningRow): void {
    // An outcome on its way decides by its own fence.
    if (row.ended || row.calledOff === 'claim_lost') return;
    row.callOff('claim_lost', 'the lease of this run is lost: another pod may run the job');
    const { target, attempts } = row.row;
    this.events.emit({ type: 'claim_lost', target, count: 1, where: 'renewal', rows: [rowRef(row.row, attempts)] });
  }
}

const CANCELLED = 'an admin cancelled this job';
