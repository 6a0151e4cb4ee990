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
  /**
   * Tokens of the marks of which one may stand: the last that was answered, and those asked for since, of which any may
   * still be carried out. They are few: a database that goes on refusing marks refuses the renewals of the partition too.
   */
  private marks: readonly string[] = [];

  constructor(
    readonly target: RegisteredTarget,
    readonly owned: OwnedPartition,
    pageSize: number,
  ) {
    this.pageSize = pageSize;
  }

  /**
   * The next mark, before it is asked for. Answers the tokens of those that it may replace: a cell asks only once the
   * outcome of its last batch is written, so nothing is under way under any of them.
   */
  willMark(token: string): readonly string[] {
    const replaces = this.marks;
    this.marks = [...replaces, token];
    return replaces;
  }

  /** It stands. What was asked for before it can no longer be carried out: it would have to replace this one. */
  hasMarked(token: string): void {
    this.marks = [token];
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
