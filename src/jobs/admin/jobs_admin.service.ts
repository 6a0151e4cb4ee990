/**
 * What admins may do with one job, and how they find it. Promises (invariant 9): a change names the state it expects and
 * its audit row stands in the same transaction; who loses a race is told 409 and changed nothing.
 */
import { Inject, Injectable } from '@nestjs/common';
import type { mongo } from 'mongoose';
import mongoose from 'mongoose';
import { adminError, notFound } from '../../common/http/admin_error.js';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import type { Tx } from '../../common/utils/transaction.js';
import { AdminAudit } from '../admin_audit.service.js';
import { JobsEvents, type RowRef } from '../jobs.events.js';
import { JobLane, JobStatus } from '../jobs.types.js';
import type { ListedJob } from '../store/admin.store.js';
import * as change from '../store/admin_change.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { InflightMark } from '../store/jobs.schema.js';

export interface AdminWish {
  readonly id: string;
  readonly actor: string;
  readonly reason?: string | undefined;
}

export type Cancelled =
  /** It waited and is gone. */
  | { _id: mongo.ObjectId; cancelled: true; state: 'deleted' }
  /** It runs: its handler is told to stop, and however the run ends the job is removed. */
  | { _id: mongo.ObjectId; cancelled: true; state: 'cancel_requested' };

@Injectable()
export class JobsAdminService {
  constructor(
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(AdminAudit) private readonly audit: AdminAudit,
  ) {}

  /** DEAD to PENDING with a fresh budget. 404 `not_found`, 409 `invalid_status`. */
  async retry({ id, actor, reason }: AdminWish): Promise<ListedJob> {
    const { _id, lane, partition, status } = await this.look(id);
    expectStatus(status, JobStatus.dead);
    return this.collections.inTransaction(async (tx) => {
      if (lane === JobLane.fast) await change.bumpRevision(tx.session, this.collections, partition);
      const revived = await change.reviveDead(tx.session, this.collections, _id, this.clock.now());
      if (!revived) throw lost();
      await this.audit.record(tx, { actor, action: 'job.retry', subject: id, reason });
      this.hint(tx, revived);
      return revived;
    });
  }

  /** Removes a DEAD row. 404 `not_found`, 409 `invalid_status`. */
  async skip({ id, actor, reason }: AdminWish): Promise<{ _id: mongo.ObjectId; skipped: true }> {
    const { _id, status } = await this.look(id);
    expectStatus(status, JobStatus.dead);
    return this.collections.inTransaction(async (tx) => {
      const removed = await change.removeIn(tx.session, this.collections, _id, 'DEAD');
      if (!removed) throw lost();
      await this.audit.record(tx, { actor, action: 'job.skip', subject: id, reason });
      tx.afterCommit(() => this.events.emit({ type: 'skipped', rows: [refOf(removed)] }));
      return { _id, skipped: true as const };
    });
  }

  /** 404 `not_found`; 409 `invalid_status` for a row that neither waits nor runs, `in_flight` for one being sent now. */
  async cancel({ id, actor, reason = '' }: AdminWish): Promise<Cancelled> {
    const { _id, lane, partition, status } = await this.look(id);
    expectStatus(status, JobStatus.pending, JobStatus.running);
    return this.collections.inTransaction(async (tx) => {
      // Before the row is read: what is read afterwards cannot be started by a mark that is not among these.
      const marks = lane === JobLane.fast ? await change.bumpRevision(tx.session, this.collections, partition) : [];
      const row = await change.readRow(tx.session, this.collections, _id);
      if (!row) throw lost();
      if (row.status === JobStatus.running) return this.cancelRunning(tx, row, { actor, reason });
      expectStatus(row.status, JobStatus.pending);
      if (isUnsettled(row, marks)) throw inFlight();
      return this.cancelWaiting(tx, row, { actor, reason });
    });
  }

  private async cancelRunning(
    tx: Tx,
    { _id, cancel_requested }: ListedJob,
    { actor, reason }: { actor: string; reason: string },
  ): Promise<Cancelled> {
    const answer: Cancelled = { _id, cancelled: true, state: 'cancel_requested' };
    if (cancel_requested) return answer; // asked for before: that request stands
    const request = { at: this.clock.now(), by: actor, reason };
    if ((await change.requestCancel(tx.session, this.collections, _id, request)) === 'lost') throw lost();
    const id = _id.toHexString();
    await this.audit.record(tx, { actor, action: 'job.cancel', subject: id, reason });
    tx.afterCommit(() => this.events.emit({ type: 'cancel_requested', id }));
    return answer;
  }

  private async cancelWaiting(
    tx: Tx,
    row: ListedJob,
    { actor, reason }: { actor: string; reason: string },
  ): Promise<Cancelled> {
    const head = row.lane === JobLane.fast && (await change.isHead(tx.session, this.collections, row, row._id));
    const removed = await change.removeIn(tx.session, this.collections, row._id, 'PENDING');
    if (!removed) throw lost();
    if (head) await change.releaseKey(tx.session, this.collections, row, this.clock.now());
    await this.audit.record(tx, { actor, action: 'job.cancel', subject: row._id.toHexString(), reason });
    tx.afterCommit(() => this.events.emit({ type: 'cancelled', row: refOf(removed) }));
    this.hint(tx, row);
    return { _id: row._id, cancelled: true, state: 'deleted' };
  }

  /** Outside of a transaction: where the row stands, and a quick answer where nothing can be done. */
  private async look(id: string): Promise<ListedJob> {
    const row = await change.lookAt(this.collections, jobId(id));
    if (!row) throw noSuchJob();
    return row;
  }

  /** The lane looks at once instead of at its next poll. */
  private hint(tx: Tx, { target, partition, lane }: ListedJob): void {
    tx.afterCommit(() => this.events.emit({ type: 'enqueued', rows: [{ target, partition, lane }] }));
  }
}

/**
 * Does a mark name the row whose result nobody recorded yet? Then it may be on its way to the target right now, and a
 * takeover would have to judge a row that is gone.
 */
function isUnsettled(row: ListedJob, marks: readonly InflightMark[]): boolean {
  return marks.some(({ token, ids }) => row.outcome_token !== token && ids.some((marked) => marked.equals(row._id)));
}

export function jobId(id: string): mongo.ObjectId {
  if (!/^[0-9a-f]{24}$/i.test(id)) throw noSuchJob();
  return new mongoose.Types.ObjectId(id);
}

export function noSuchJob(): Error {
  return notFound('no job has this id');
}

export function refOf({
  _id,
  target,
  code,
  dedupe_key,
  attempts,
}: Pick<ListedJob, '_id' | (keyof RowRef & keyof ListedJob)>): RowRef {
  return { id: _id.toHexString(), target, code, dedupe_key, attempts };
}

function expectStatus(status: JobStatus, ...expected: JobStatus[]): void {
  if (expected.includes(status)) return;
  throw adminError(409, 'invalid_status', `the job is ${status}, expected ${expected.join(' or ')}`);
}

function inFlight(): Error {
  return adminError(409, 'in_flight', 'the job is being sent right now: try again in a moment');
}

function lost(): Error {
  return adminError(409, 'invalid_status', 'the job changed meanwhile');
}
