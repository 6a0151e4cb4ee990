/**
 * The wait for the end that the driver gives to an attempt of a transaction, once the attempt's work has settled: the
 * commit, the abort, or the next attempt.
 *
 * Promises: nobody waits for it for ever, and what the driver throws while it commits never looks like a fault of the work.
 * A command whose connection was destroyed just before it was written is lost in the driver: its promise never settles. And
 * a connection that breaks in the middle of the commit's write makes the driver fail with a `TypeError` of its own.
 */
import { CommitUnknownError, TransactionEndedError } from '../errors.js';
import { isDatabaseAway } from './database_away.js';
import { isCommitUnknown } from './write_errors.js';

/** The driver tries a commit again for two minutes, and may then look for a server for another half. */
export const ENDS_WITHIN_MS = 150_000;

const COMMITTING = 'committing';
type Phase = 'working' | typeof COMMITTING | { failed: unknown };

export class TransactionEnd {
  private phase: Phase = 'working';
  private over = false;
  private timer: NodeJS.Timeout | undefined;
  private giveUp!: (error: unknown) => void;
  private readonly overdue = new Promise<never>((_, reject) => (this.giveUp = reject));

  constructor(private readonly withinMs: number) {}

  /** An attempt begins. Refused after the wait was given up: an abort that comes back late runs no work again. */
  begin(): void {
    if (this.over) throw new TransactionEndedError();
    this.disarm();
    this.phase = 'working';
  }

  workDone(): void {
    this.phase = COMMITTING;
    this.arm();
  }

  workFailed(error: unknown): void {
    this.phase = { failed: error };
    this.arm();
  }

  /**
   * Settles as the driver's call does, or gives it up: with `CommitUnknownError` when the work had succeeded, with the
   * work's own error when it had failed. What a call that was given up makes later is ignored: its caller was told that
   * nobody knows, so nothing of the transaction may run on.
   */
  async of<T>(call: Promise<T>): Promise<T> {
    try {
      return await Promise.race([call, this.overdue]);
    } catch (error) {
      throw this.phase === COMMITTING && leavesUnknown(error) ? unknownBy(error) : error;
    } finally {
      this.over = true;
      this.disarm();
    }
  }

  private arm(): void {
    if (this.over) return;
    // One turn more: after a pause of the whole process timers come before the answers that have arrived meanwhile.
    const timer = setTimeout(
      () => setImmediate(() => this.timer === timer && this.giveUp(this.errorOf())),
      this.withinMs,
    );
    this.timer = timer.unref();
  }

  private disarm(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private errorOf(): unknown {
    if (typeof this.phase === 'object') return this.phase.failed;
    return new CommitUnknownError(`nothing came back of the commit within ${this.withinMs} ms: nobody knows its end`);
  }
}

/**
 * What the server itself says about a commit is an answer. Everything else leaves it open, also that no server was found: the
 * driver throws this when it could not try again a commit whose reply was lost.
 */
function leavesUnknown(error: unknown): boolean {
  return !isOfDriver(error) || isDatabaseAway(error) || isCommitUnknown(error);
}

/** By shape, not by class: the host's driver may be another copy. */
function isOfDriver(error: unknown): boolean {
  return typeof (error as { hasErrorLabel?: unknown } | null | undefined)?.hasErrorLabel === 'function';
}

function unknownBy(error: unknown): CommitUnknownError {
  if (error instanceof CommitUnknownError) return error;
  return new CommitUnknownError('the connection broke while the transaction committed: nobody knows its end', {
    cause: error,
  });
}
