/**
 * The only place that starts, retries or commits a Mongo transaction.
 *
 * Promises (invariant 1): work done through a `Tx` exists if and only if the transaction committed. The driver may run
 * the callback several times, so everything an attempt collected (hooks, queued operations) belongs to that attempt's
 * own `Tx` and dies with it. A `Tx` that has ended refuses further work instead of letting it escape the commit.
 *
 * Proven by test/store/transaction.spec.ts.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { Logger } from '@nestjs/common';
import type { ClientSession, Connection } from 'mongoose';
import type { mongo } from 'mongoose';
import { errorText, InvalidInputError, TransactionEndedError } from '../errors.js';
import { crashPoint } from '../ports/crash_points.js';
import { afterCommitOf, attemptOf, hookIsPendingOf, type CommitHook } from './session_hooks.js';
import { ENDS_WITHIN_MS, TransactionEnd } from './transaction_end.js';
import { isTransient } from './write_errors.js';

/** A transaction someone else commits: Mongoose's `connection.transaction()`, or a session started by hand. */
export interface ForeignTx {
  session: ClientSession;
}

export interface InTransactionOptions extends mongo.TransactionOptions {
  /**
   * How long the driver may take to commit, or to abort, once the work of an attempt has settled; in ms. Default: 150 s,
   * about as long as it tries a commit again itself. Of no use to a call that joins another one: that one's holds.
   */
  readonly endsWithinMs?: number;
}

/** What a timer can wait: a longer wait would end at once. */
const LONGEST_MS = 2 ** 31 - 1;

const logger = new Logger('Sidelane');
const ambient = new AsyncLocalStorage<Tx | undefined>();

/** One attempt of one transaction. */
export class Tx implements ForeignTx {
  private readonly hooks: CommitHook[] = [];
  private ended = false;
  private doom: { error: unknown } | undefined;
  /** @internal The work aborted or committed the session itself. */
  endedByHand = false;

  constructor(
    readonly session: ClientSession,
    readonly connection: Connection,
    /** An earlier attempt of the same work was aborted. */
    readonly again = false,
  ) {}

  get open(): boolean {
    return !this.ended;
  }

  /** Runs after the commit, and only then, outside of the transaction's context. Its errors are logged, never thrown. */
  afterCommit(hook: CommitHook): void {
    this.assertOpen();
    this.hooks.push(hook);
  }

  /** @internal */
  hasHook(hook: CommitHook): boolean {
    return this.hooks.includes(hook);
  }

  assertOpen(): void {
    if (this.ended) throw new TransactionEndedError();
  }

  /** Makes the commit fail with this error even if the caller swallows it: its write is missing from the transaction. */
  failWith(error: unknown): void {
    this.doom ??= { error };
  }

  /** @internal What the commit will fail with. */
  get doomedBy(): { error: unknown } | undefined {
    return this.doom;
  }

  /**
   * @internal What ended the attempt: a conflict of its own comes before what the work made of it, or a work that puts
   * its errors into other words would not be run again.
   */
  causeOf(error: unknown): unknown {
    return this.doom && isTransient(this.doom.error) ? this.doom.error : error;
  }

  /** @internal Waits for operations the caller forgot to await, then closes the attempt to further work. */
  async finish(): Promise<void> {
    let last: Promise<unknown> | undefined;
    // Closed in the same turn in which nothing more was queued: what came between would run beside the commit.
    while (last !== queues.get(this.session)) await (last = queues.get(this.session));
    this.ended = true;
    if (this.doom) throw this.doom.error;
    this.endedByHand = !this.session.inTransaction();
  }

  /** @internal The attempt is over, one way or the other. */
  end(): void {
    this.ended = true;
  }

  /**
   * @internal The work failed. The driver aborts, and a command that reaches an aborted session goes out as a write of
   * its own, or into the next attempt: so what waits in the queue is refused, and what is under way is waited for first.
   */
  async abandon(): Promise<void> {
    this.ended = true;
    await queues.get(this.session);
  }

  /** @internal */
  takeHooks(): CommitHook[] {
    return this.hooks.splice(0);
  }
}

/**
 * Runs `work` in one transaction and its after-commit hooks afterwards. Inside another `inTransaction` on the same
 * connection it joins that one: an error then dooms the outer transaction as well, since half of it is missing.
 * The callback may run more than once (transient conflicts), so it must not keep state outside of itself.
 *
 * Throws `TransactionEndedError` in work that outlived the transaction it was started in, and `CommitUnknownError` when the
 * connection broke during the commit, or nothing came back of it within `endsWithinMs`: then no hook runs, also if it did
 * commit. Look at what the work wrote, by a key of its own, before doing it again. An abort of which nothing comes back
 * ends in the same time, with what the work threw.
 */
export async function inTransaction<T>(
  connection: Connection,
  work: (tx: Tx) => Promise<T>,
  { endsWithinMs = ENDS_WITHIN_MS, ...options }: InTransactionOptions = {},
): Promise<T> {
  const outer = ambientTx();
  if (outer?.connection === connection) {
    outer.assertOpen(); // work left over from an attempt that was aborted would commit what the next attempt does again
    return join(outer, work);
  }

  const end = new TransactionEnd(checkedMs(endsWithinMs));
  let attempt: Tx | undefined;
  let result: T;
  try {
    const call = outsideTransaction(() =>
      connection.transaction(
        async (session) => {
          end.begin();
          attempt?.end(); // an aborted attempt: whatever of it still runs must not write into this one
          const tx = (attempt = new Tx(session, connection, attempt !== undefined));
          return attempted(tx, work, end);
        },
        { readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' }, readPreference: 'primary', ...options },
      ),
    );
    result = (await end.of(call)) as T;
  } finally {
    attempt?.end();
  }
  crashPoint('after_commit');
  // The driver answers as if it had committed; nobody knows whether anything did, so no hook may run.
  if (attempt?.endedByHand)
    throw new TransactionEndedError('The work ended its transaction itself: leave that to inTransaction().');
  if (attempt) await runHooks(attempt.takeHooks());
  return result;
}

/** From the start of an attempt to where the driver commits it (this resolves) or aborts it (this rejects). */
async function attempted<T>(tx: Tx, work: (tx: Tx) => Promise<T>, end: TransactionEnd): Promise<T> {
  let value: T;
  try {
    value = await ambient.run(tx, () => work(tx));
  } catch (error) {
    end.workFailed(tx.causeOf(error)); // before the wait: a command that is lost would hold up the abort as well
    await tx.abandon();
    throw tx.causeOf(error);
  }
  try {
    await tx.finish();
  } catch (error) {
    end.workFailed(error);
    throw error;
  }
  crashPoint('before_commit');
  end.workDone();
  return value;
}

function checkedMs(ms: number): number {
  if (Number.isInteger(ms) && ms >= 1 && ms <= LONGEST_MS) return ms;
  throw new InvalidInputError(
    'invalid_options',
    `endsWithinMs: expected whole ms from 1 to ${LONGEST_MS}`,
    'endsWithinMs',
  );
}

async function join<T>(outer: Tx, work: (tx: Tx) => Promise<T>): Promise<T> {
  try {
    return await work(outer);
  } catch (error) {
    outer.failWith(error);
    throw error;
  }
}

/** The transaction this call stands in, open or already ended. */
export function ambientTx(): Tx | undefined {
  return ambient.getStore();
}

/** Runs work that must not see the transaction it was started from (hooks, handlers, loops). */
export function outsideTransaction<T>(work: () => T): T {
  // Not `exit`: it switches the whole storage off and on, which every promise of the process pays for (Node below 24).
  return ambient.run(undefined, work);
}

/** Registers a hook on any transaction, ours or one that somebody else commits. */
export function afterCommit(tx: Tx | ForeignTx, hook: CommitHook): void {
  if (tx instanceof Tx) tx.afterCommit(hook);
  else afterCommitOf(tx.session, hook, runHooks);
}

/** Whether the hook waits for the commit of this very attempt: it ran, or its attempt was aborted, when it does not. */
export function hookIsPending(tx: Tx | ForeignTx, hook: CommitHook): boolean {
  return tx instanceof Tx ? tx.hasHook(hook) : hookIsPendingOf(tx.session, hook);
}

async function runHooks(hooks: CommitHook[]): Promise<void> {
  for (const hook of hooks) {
    try {
      crashPoint('before_hook');
      await outsideTransaction(hook);
      crashPoint('after_hook');
    } catch (error) {
      // The transaction HAS committed: an error here must never look like a failed transaction.
      logger.error(`after-commit hook failed: ${errorText(error)}`, error instanceof Error ? error.stack : undefined);
    }
  }
}

/**
 * A session carries one operation at a time: with two at once (a `Promise.all` in user code) the driver may send the
 * second before the first has opened the transaction, and it escapes. So ours queue up behind each other per session.
 */
const queues = new WeakMap<ClientSession, Promise<unknown>>();

export function queueOnSession<T>(session: ClientSession, operation: () => Promise<T>): Promise<T> {
  const before = queues.get(session) ?? Promise.resolve();
  const run = before.then(operation, operation);
  queues.set(
    session,
    run.catch(() => undefined),
  );
  return run;
}

/** The same for work that belongs to a transaction: refused when that one is over by the time its turn comes. */
export function queueInTransaction<T>(tx: Tx | ForeignTx, operation: () => Promise<T>): Promise<T> {
  const { session } = tx;
  const attempt = attemptOf(session);
  return queueOnSession(session, () => {
    if (tx instanceof Tx) tx.assertOpen();
    else if (!attempt || attemptOf(session) !== attempt) throw new TransactionEndedError();
    return operation();
  });
}
