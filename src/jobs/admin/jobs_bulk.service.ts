/**
 * Retry and skip of many DEAD rows by a filter. Promises: a filter always names a target, a code, a key or ids, so a
 * misspelt one never means "all"; each slice is one small transaction, and the call's one audit row counts what is
 * committed, slice by slice. Ended half way (a crash, a timeout of the client) the rest is simply still DEAD: calling
 * again goes on.
 */
import { Inject, Injectable } from '@nestjs/common';
import mongoose from 'mongoose';
import { adminError } from '../../common/http/admin_error.js';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import type { Tx } from '../../common/utils/transaction.js';
import { AdminAudit } from '../admin_audit.service.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import * as bulk from '../store/admin_bulk.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { refOf } from './jobs_admin.service.js';

/** Rows of one transaction. */
const SLICE_ROWS = 100;

export type BulkAction = 'retry' | 'skip';

export interface BulkWish {
  readonly filter: Omit<bulk.DeadFilter, 'ids'> & { readonly ids?: readonly string[] | undefined };
  /** Most rows to change. Default: `admin.bulk_limit`, which it may not exceed. */
  readonly limit?: number | undefined;
  readonly dry_run?: boolean | undefined;
  readonly reason?: string | undefined;
}

interface BulkCall {
  readonly action: BulkAction;
  readonly wish: BulkWish;
  readonly actor: string;
  readonly auditId: mongoose.Types.ObjectId;
}

export interface BulkAnswer {
  changed: number;
  /** Rows that match now. */
  remaining: number;
  /** True where `remaining` stopped at `admin.count_limit`. */
  remaining_at_least: boolean;
  dry_run: boolean;
}

@Injectable()
export class JobsBulkService {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(AdminAudit) private readonly audit: AdminAudit,
  ) {}

  /** 400 `invalid_input` for a filter that names nothing, or a limit above `admin.bulk_limit`. */
  async run(action: BulkAction, wish: BulkWish, actor: string): Promise<BulkAnswer> {
    const filter = this.checked(wish);
    const { bulk_limit, count_limit } = this.config.admin;
    const dry_run = wish.dry_run ?? false;
    const changed = dry_run
      ? 0
      : await this.change({ action, wish, actor, auditId: this.audit.newId() }, filter, wish.limit ?? bulk_limit);
    const left = await this.count(filter, count_limit);
    return { changed, remaining: Math.min(left, count_limit), remaining_at_least: left > count_limit, dry_run };
  }

  /** Look by look, so that no command reads a whole backlog. */
  private async count(filter: bulk.DeadFilter, most: number): Promise<number> {
    let count = 0;
    let after: mongoose.Types.ObjectId | undefined;
    do {
      const found = await bulk.countDead(this.collections, filter, { after, look: most + 1 });
      count += found.count;
      after = found.looked_to;
    } while (after && count <= most);
    return count;
  }

  private async change(call: BulkCall, filter: bulk.DeadFilter, limit: number): Promise<number> {
    let changed = 0;
    let looked = 0;
    let after: mongoose.Types.ObjectId | undefined;
    do {
      const wanted = Math.min(SLICE_ROWS, limit - looked);
      const slice = { after, limit: wanted, look: this.config.admin.count_limit };
      const { rows, looked_to } = await bulk.readSlice(this.collections, filter, slice);
      if (rows.length > 0) changed += await this.changeSlice(call, rows);
      looked += rows.length;
      after = looked_to;
    } while (after && looked < limit);
    return changed;
  }

  private async changeSlice(
    { action, wish, actor, auditId }: BulkCall,
    rows: readonly bulk.SliceRow[],
  ): Promise<number> {
    return this.collections.inTransaction(async (tx) => {
      const count = action === 'skip' ? await this.removeSlice(tx, rows) : await this.reviveSlice(tx, rows);
      if (count === 0) return 0;
      const subject = JSON.stringify(wish.filter);
      await this.audit.add(tx, auditId, { actor, action: `jobs.${action}`, subject, count, reason: wish.reason });
      return count;
    });
  }

  private async removeSlice(tx: Tx, rows: readonly bulk.SliceRow[]): Promise<number> {
    const removed = await bulk.removeSlice(tx.session, this.collections, rows.map(idOf));
    tx.afterCommit(() => this.events.emit({ type: 'skipped', rows: removed.map(refOf) }));
    return removed.length;
  }

  private async reviveSlice(tx: Tx, rows: readonly bulk.SliceRow[]): Promise<number> {
    const partitions = new Set(rows.filter((row) => row.lane === JobLane.fast).map((row) => row.partition));
    await bulk.bumpRevisions(tx.session, this.collections, [...partitions]);
    const count = await bulk.reviveSlice(tx.session, this.collections, rows.map(idOf), this.clock.now());
    const cells = rows.map(({ target, partition, lane }) => ({ target, partition, lane }));
    tx.afterCommit(() => this.events.emit({ type: 'enqueued', rows: cells }));
    return count;
  }

  private checked({ filter, limit }: BulkWish): bulk.DeadFilter {
    const { ids, target, code, key } = filter;
    if (ids === undefined && target === undefined && code === undefined && key === undefined) {
      throw adminError(400, 'invalid_input', 'filter: expected at least one of target, code, key and ids');
    }
    const { bulk_limit } = this.config.admin;
    if (limit !== undefined && limit > bulk_limit) {
      throw adminError(400, 'invalid_input', `limit: expected at most admin.bulk_limit (${bulk_limit}), got ${limit}`);
    }
    return { ...filter, ids: ids && [...new Set(ids)].map((id) => new mongoose.Types.ObjectId(id)) };
  }
}

const idOf = (row: bulk.SliceRow): mongoose.Types.ObjectId => row._id;
