// Promises: one multi-document transaction, bound to one PostgreSQL connection from its first command to its end; it ends
// once, and a commit that has succeeded answers ok for ever. Must never be left open: an error, a newer transaction of the
// session, the loss of its last client socket, idleness and `killSessions` all roll it back.
import { Users } from './client.connection.js';
import type { ClientConnection } from './client.connection.js';
import { Code, CommandError } from './errors.js';
import { statement } from './postgres.pool.js';
import type { Lease, PostgresPool } from './postgres.pool.js';

/** `unknown`: the connection broke while PostgreSQL was committing. */
type State = 'open' | 'committing' | 'committed' | 'aborted' | 'unknown';

/** As on MongoDB, a transaction does not wait for another's write: it conflicts. 20 ms let short plain writes pass. */
const BEGIN = `BEGIN ISOLATION LEVEL REPEATABLE READ;
  SET LOCAL lock_timeout = '20ms'; SET LOCAL documentdb.batchUpdateLockTimeoutMs = 20`;
const XID = statement('SELECT pg_current_xact_id_if_assigned()::text AS xid');
const STATUS = statement('SELECT pg_xact_status($1::text::xid8) AS status');

export class Transaction {
  #state: State = 'open';
  #ending?: Promise<void>;
  #running = 0;
  #lastUsed = Date.now();
  #xid: string | null = null;
  readonly #users = new Users(() => void this.rollBack());
  readonly #onEnd: (() => void)[] = [];

  private constructor(
    readonly number: bigint,
    private readonly pool: PostgresPool,
    private readonly lease: Lease,
  ) {}

  static async begin(pool: PostgresPool, number: bigint): Promise<Transaction> {
    const lease = await pool.lease();
    try {
      await lease.command(BEGIN);
    } catch (error) {
      await lease.release();
      throw error;
    }
    return new Transaction(number, pool, lease);
  }

  get state(): State {
    return this.#state;
  }

  usedBy(connection: ClientConnection): void {
    if (this.#state === 'open') this.#users.add(connection);
  }

  /** What lives inside (cursors) and must be forgotten when it ends. */
  onEnd(forget: () => void): void {
    this.#onEnd.push(forget);
  }

  /** Runs a statement of the transaction. When it was rolled back meanwhile, that is the answer. */
  async run<T>(work: (lease: Lease) => Promise<T>): Promise<T> {
    this.#mustBeOpen();
    this.#running += 1;
    try {
      const result = await work(this.lease);
      this.#mustBeOpen();
      return result;
    } catch (error) {
      this.#mustBeOpen();
      throw error;
    } finally {
      this.#running -= 1;
      this.#lastUsed = Date.now();
    }
  }

  async commit(): Promise<void> {
    if (this.#state === 'unknown') return this.#learnOutcome();
    if (this.#state === 'committed') return;
    this.#mustBeOpen();
    this.#state = 'committing';
    try {
      this.#xid = ((await this.lease.query(XID))[0]?.xid as string | undefined) ?? null;
      const tag = await this.lease.command('COMMIT');
      this.#state = tag === 'COMMIT' ? 'committed' : 'aborted';
      if (this.#state === 'aborted') throw this.gone();
    } catch (error) {
      if (this.#state === 'committing') this.#state = this.#xid ? 'unknown' : 'aborted';
      throw error;
    } finally {
      await this.#end();
    }
  }

  /** PostgreSQL remembers what became of it: nothing is guessed, so nothing is applied twice. */
  async #learnOutcome(): Promise<void> {
    const [row] = await this.pool.aside(STATUS, [this.#xid]);
    if (row?.status === 'in progress')
      throw new CommandError(Code.ShutdownInProgress, 'the commit is still on its way');
    this.#state = row?.status === 'committed' ? 'committed' : 'aborted';
    if (this.#state === 'aborted') throw this.gone();
  }

  /** Rolls back whatever it is doing; does nothing once the transaction has ended or is committing. */
  async rollBack(): Promise<void> {
    if (this.#state !== 'open') return this.#ending;
    this.#state = 'aborted';
    this.#ending = (async () => {
      if (this.#running > 0) this.lease.cancel();
      await this.lease.command('ROLLBACK').catch(() => undefined); // a broken connection has rolled back by itself
      await this.#end();
    })();
    return this.#ending;
  }

  idleSince(now: number): number {
    return this.#running > 0 || this.#state !== 'open' ? 0 : now - this.#lastUsed;
  }

  gone(): CommandError {
    return noSuchTransaction(this.number);
  }

  #mustBeOpen(): void {
    if (this.#state !== 'open') throw this.gone();
  }

  async #end(): Promise<void> {
    this.#users.clear();
    for (const forget of this.#onEnd.splice(0)) forget();
    await this.lease.release();
  }
}

export function noSuchTransaction(number: bigint): CommandError {
  return new CommandError(
    Code.NoSuchTransaction,
    `Given transaction number ${number} does not match any in-progress transactions.`,
  );
}
