/**
 * Who changed what, and why. Promises: the row exists if and only if the change does, because it is written in the
 * change's own transaction. Holds no payload.
 */
import { Inject, Injectable } from '@nestjs/common';
import mongoose from 'mongoose';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { queueOnSession, type Tx } from '../common/utils/transaction.js';
import { addToAudit, insertAudit } from './store/audit.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from './store/collections.js';
import type { AuditDoc } from './store/jobs.schema.js';

export interface AdminChange {
  /** As `@AdminActor()` gives it. */
  readonly actor: string;
  /** `job.retry`, `target.pause`, `schedule.override`, … */
  readonly action: string;
  /** Id, target name, schedule code; for bulk actions the filter as JSON. */
  readonly subject: string;
  /** Things changed. Default 1. */
  readonly count?: number;
  readonly reason?: string | undefined;
  /** What it was changed to, where the action does not say. */
  readonly detail?: string | undefined;
}

@Injectable()
export class AdminAudit {
  constructor(
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** Writes the row in `tx`. A failed write fails the transaction: no change without its row. */
  async record(tx: Tx, change: AdminChange): Promise<void> {
    await queueOnSession(tx.session, () => insertAudit(tx.session, this.collections, this.rowOf(this.newId(), change)));
  }

  /** One more transaction of the action `id`: its one row counts what is committed so far. */
  async add(tx: Tx, id: mongoose.Types.ObjectId, change: AdminChange): Promise<void> {
    await queueOnSession(tx.session, () => addToAudit(tx.session, this.collections, this.rowOf(id, change)));
  }

  /** For `add`: one per action. */
  newId(): mongoose.Types.ObjectId {
    return new mongoose.Types.ObjectId();
  }

  private rowOf(_id: mongoose.Types.ObjectId, change: AdminChange): AuditDoc {
    const { actor, action, subject, count = 1, reason, detail } = change;
    const why = { ...(reason !== undefined && { reason }), ...(detail !== undefined && { detail }) };
    return { _id, at: this.clock.now(), actor, action, subject, count, ...why };
  }
}
