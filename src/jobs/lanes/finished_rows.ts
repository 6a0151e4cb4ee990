/**
 * Deletes rows that succeeded. Cells of a target that end at the same time are deleted by one command; each row under its
 * own fence (store/outcome_update.ts).
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { GroupCommit } from '../../common/utils/group_commit.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { deleteFinished } from '../store/outcome.store.js';

/** Batches of one delete: a thousand rows or so. */
const MOST_BATCHES = 16;
const PATIENCE_MS = 50;

/** `lost`: rows that somebody else had ended. With others in the same command it is known of their target, not of the cell. */
export interface Deleted {
  readonly lost: number;
  readonly shared: boolean;
}

@Injectable()
export class FinishedRows {
  private readonly groups = new Map<string, GroupCommit<readonly JobDoc[], Deleted>>();

  constructor(
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** Throws what the database does; every batch of the command is then kept by its cell, and tried again alone. */
  delete(target: string, rows: readonly JobDoc[]): Promise<Deleted> {
    const group = this.groups.get(target) ?? this.open();
    this.groups.set(target, group);
    return group.submit(rows);
  }

  private open(): GroupCommit<readonly JobDoc[], Deleted> {
    return new GroupCommit({
      most: MOST_BATCHES,
      patience: { clock: this.clock, ms: PATIENCE_MS },
      write: async (batches) => {
        const rows = batches.flat();
        const lost = rows.length - (await deleteFinished(this.collections, rows));
        const shared = batches.length > 1;
        // Said once, by the first of them.
        return batches.map((_, index) => ({ lost: index === 0 ? lost : 0, shared }));
      },
    });
  }
}
