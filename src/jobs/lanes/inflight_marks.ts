/**
 * Writes the marks of this pod's cells. Cells that are about to start at the same time are marked by one command, each
 * under its own fence (store/partition_lease.store.ts).
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { GroupCommit } from '../../common/utils/group_commit.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { markInflight, type Marked, type MarkRequest } from '../store/partition_lease.store.js';

const MOST_MARKS = 64;
const PATIENCE_MS = 50;

@Injectable()
export class InflightMarks {
  private readonly group: GroupCommit<MarkRequest, Marked>;

  constructor(@Inject(JOBS_COLLECTIONS) collections: JobsCollections, @Inject(CLOCK) clock: Clock) {
    this.group = new GroupCommit({
      most: MOST_MARKS,
      patience: { clock, ms: PATIENCE_MS },
      write: (requests) => markInflight(collections, requests, clock.now()),
    });
  }

  /** Throws what the database does; the batch then must not start. */
  write(request: MarkRequest): Promise<Marked> {
    return this.group.submit(request);
  }
}
