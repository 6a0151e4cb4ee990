/** One partition × one fast-lane target: the unit that runs one batch at a time. Lives as long as its term of ownership. */
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { OwnedPartition } from './owned_partition.js';
import type { PreparedOutcome } from './outcome.service.js';

export class Cell {
  /** Known to have work: reads until it comes back empty. */
  hot = false;
  running = false;
  /** Where a walk through a backlog stands: the last key of the last page; undefined outside of a walk. */
  walk: string | undefined;
  /** Whether the walk under way has run or deferred anything. */
  walkProgress = false;
  /** A suspect of its last page waits until no other one runs: no use in reading it again before. */
  holdsSuspect = false;
  /** Rows that shared one error: they run alone, so that the bad one is charged alone. */
  private readonly isolated = new Set<string>();
  /** An outcome that could not be written: written before anything else of this cell runs. */
  kept: PreparedOutcome | undefined;
  /** Rows to read at once: fewer when rows are large. */
  pageSize: number;

  constructor(
    readonly target: RegisteredTarget,
    readonly owned: OwnedPartition,
    pageSize: number,
  ) {
    this.pageSize = pageSize;
  }

  isolate(row: JobDoc): void {
    this.isolated.add(row._id.toHexString());
  }

  reunite(row: JobDoc): void {
    if (this.isolated.size > 0) this.isolated.delete(row._id.toHexString());
  }

  isIsolated(row: JobDoc): boolean {
    return this.isolated.size > 0 && this.isolated.has(row._id.toHexString());
  }

  get id(): { target: string; partition: number } {
    return { target: this.target.name, partition: this.owned.partition };
  }
}
