// Promises: per session, one numbered command at a time; a transaction is found by its number; a numbered plain write that
// comes twice (its answer was lost with the connection) is applied once. Must never remember an answer before its write is
// stored, nor grow without bound: sessions go when ended, idle for 30 minutes, or when there are too many.
import type { ClientConnection } from './client.connection.js';
import { Code, CommandError } from './errors.js';
import type { PostgresPool } from './postgres.pool.js';
import { noSuchTransaction, Transaction } from './transaction.js';

const SESSION_LIFETIME_MS = 30 * 60_000;
const MAX_SESSIONS = 10_000;
const MAX_REMEMBERED_BYTES = 64 * 1024 * 1024;

export class Session {
  lastUsed = Date.now();
  transaction?: Transaction;
  remembered?: { number: bigint; reply: Buffer };
  #newest = -1n;
  #tail: Promise<unknown> = Promise.resolve();

  /** One command after the other, as a server checks a session out to one operation. */
  async exclusive<T>(work: () => Promise<T>): Promise<T> {
    const before = this.#tail;
    let done: () => void = () => {};
    this.#tail = new Promise<void>((resolve) => (done = resolve));
    await before;
    this.lastUsed = Date.now();
    try {
      return await work();
    } finally {
      done();
    }
  }

  /** A number only grows; a newer one ends what the older one had open. */
  async advance(number: bigint): Promise<void> {
    if (number < this.#newest) {
      throw new CommandError(
        Code.TransactionTooOld,
        `Transaction number ${number} is older than ${this.#newest}, which this session has used`,
      );
    }
    if (number > this.#newest) await this.transaction?.rollBack();
    this.#newest = number;
  }

  async begin(pool: PostgresPool, number: bigint): Promise<Transaction> {
    await this.advance(number);
    if (this.transaction?.number === number || this.remembered?.number === number) {
      throw new CommandError(Code.ConflictingOperationInProgress, `Transaction number ${number} has been used already`);
    }
    return (this.transaction = await Transaction.begin(pool, number));
  }

  /** The open transaction of that number. */
  open(number: bigint): Transaction {
    const found = this.find(number);
    if (found.state === 'committed') {
      throw new CommandError(Code.TransactionCommitted, `Transaction ${number} has been committed.`);
    }
    if (found.state !== 'open') throw found.gone();
    return found;
  }

  find(number: bigint): Transaction {
    if (this.transaction?.number !== number) throw noSuchTransaction(number);
    return this.transaction;
  }
}

export class SessionRegistry {
  readonly #sessions = new Map<string, Session>();
  #rememberedBytes = 0;

  get(key: string): Session {
    let session = this.#sessions.get(key);
    if (session) this.#sessions.delete(key);
    session ??= new Session();
    this.#sessions.set(key, session); // newest last, so that the oldest goes first
    if (this.#sessions.size > MAX_SESSIONS) void this.end([this.#sessions.keys().next().value!]);
    return session;
  }

  remember(session: Session, number: bigint, reply: Buffer): void {
    this.#forget(session);
    session.remembered = { number, reply };
    this.#rememberedBytes += reply.length;
    for (const oldest of this.#sessions.values()) {
      if (this.#rememberedBytes <= MAX_REMEMBERED_BYTES) break;
      if (oldest !== session) this.#forget(oldest);
    }
  }

  /** Ends sessions and rolls back what they have open. */
  async end(keys: Iterable<string>): Promise<void> {
    const ending: Promise<void>[] = [];
    for (const key of keys) {
      const session = this.#sessions.get(key);
      if (!session) continue;
      this.#sessions.delete(key);
      this.#forget(session);
      if (session.transaction) ending.push(session.transaction.rollBack());
    }
    await Promise.all(ending);
  }

  endAll(): Promise<void> {
    return this.end([...this.#sessions.keys()]);
  }

  refresh(keys: string[]): void {
    for (const key of keys) this.get(key).lastUsed = Date.now();
  }

  async reap(idleTransactionMs: number): Promise<void> {
    const now = Date.now();
    const idle: string[] = [];
    for (const [key, session] of this.#sessions) {
      if ((session.transaction?.idleSince(now) ?? 0) >= idleTransactionMs) await session.transaction?.rollBack();
      if (now - session.lastUsed > SESSION_LIFETIME_MS) idle.push(key);
    }
    await this.end(idle);
  }

  #forget(session: Session): void {
    this.#rememberedBytes -= session.remembered?.reply.length ?? 0;
    session.remembered = undefined;
  }
}

/** The transaction a command belongs to. Its first command begins it. */
export async function transactionOf(
  session: Session,
  pool: PostgresPool,
  command: { number: bigint; starts: boolean; connection: ClientConnection },
): Promise<Transaction> {
  const transaction = command.starts ? await session.begin(pool, command.number) : session.open(command.number);
  transaction.usedBy(command.connection);
  return transaction;
}
