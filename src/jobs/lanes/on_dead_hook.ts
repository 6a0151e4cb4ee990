/**
 * The calls of `on_dead` for one row, over all attempts of the transaction that makes it DEAD.
 *
 * Promises: the hook is called `MOST_CALLS` times at most and has `MOST_MS` in all; beyond that it has failed. A hook whose
 * duplicate key aborts the transaction unseen would otherwise be called for the driver's two minutes, and one that never
 * comes back would hold its row, and what waits behind it, for ever. It must never take a fault of the database for one of
 * the hook: the outcome is then kept, and the hook called later.
 */
import type { Clock } from '../../common/ports/clock.js';
import { comesOfDatabaseAway } from '../../common/utils/database_away.js';
import type { Tx } from '../../common/utils/transaction.js';
import { within } from '../../common/utils/within.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { isCommitUnknown, isTransient } from '../store/write_errors.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import { toJob } from './row_ref.js';

/** Enough for conflicts with what other rows' hooks write, since the driver waits longer from one to the next. */
const MOST_CALLS = 20;
const MOST_MS = 10_000;

class OnDeadFailed extends Error {
  constructor(cause: unknown) {
    super('on_dead failed', { cause });
  }
}

export class OnDeadHook {
  private calls = 0;
  private ms = 0;

  constructor(
    private readonly clock: Clock,
    private readonly target: RegisteredTarget,
  ) {}

  /** Inside of the transaction. Throws `OnDeadFailed`, or what makes the driver run the whole attempt again. */
  async call(row: JobDoc, tx: Tx): Promise<void> {
    if (this.calls >= MOST_CALLS) {
      throw new OnDeadFailed(new Error(`the transaction of on_dead was aborted ${this.calls} times`));
    }
    this.calls++;
    const began = this.clock.monotonic();
    let cameBack: boolean;
    try {
      const work = (async () => this.target.on_dead!(toJob(row), tx))();
      cameBack = await within(this.clock, Math.max(0, MOST_MS - this.ms), work);
    } catch (error) {
      // A conflict inside the transaction is the driver's business: it runs the whole attempt again.
      throw isTransient(error) ? error : new OnDeadFailed(error);
    } finally {
      this.ms += this.clock.monotonic() - began;
    }
    if (!cameBack) throw new OnDeadFailed(new Error(`on_dead did not come back within ${MOST_MS} ms`));
    // What it swallowed is its own as well: a service that breaks off looks like the database, and would keep the row.
    // (A conflict comes before what is thrown here: the transaction sees to that.)
    if (tx.doomedBy) throw new OnDeadFailed(tx.doomedBy.error);
  }

  /**
   * What the transaction threw: `again`: a connection broke under the hook, which is no fault of it. `database`: to be
   * thrown on. Otherwise the hook is at fault, and the row goes DEAD without it: by what it threw, by an error it swallowed
   * that doomed the transaction, by ending the transaction itself.
   */
  judge(error: unknown): 'again' | 'database' | { cause: unknown } {
    if (error instanceof OnDeadFailed) {
      // Where the database is away the write before the hook says so next; where only the hook says it, it means its own.
      const { cause } = error;
      return comesOfDatabaseAway(cause) && this.calls < MOST_CALLS && this.ms < MOST_MS ? 'again' : { cause };
    }
    const ofDatabase = this.calls === 0 || comesOfDatabaseAway(error) || isTransient(error) || isCommitUnknown(error);
    return ofDatabase ? 'database' : { cause: error };
  }
}
