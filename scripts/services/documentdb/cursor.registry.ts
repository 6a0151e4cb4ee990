// Promises: a result longer than a batch is read to its end from wherever PostgreSQL keeps it: in its transaction, on a
// connection of its own, or nowhere (then the continuation says where to go on). Must never keep a connection for a client
// that has gone or that stopped reading for ten minutes, nor outlive its transaction.
import type { ClientConnection } from './client.connection.js';
import { Users } from './client.connection.js';
import { Code, CommandError } from './errors.js';
import type { Lease } from './postgres.pool.js';
import type { Transaction } from './transaction.js';

const IDLE_MS = 10 * 60_000;

export interface CursorHome {
  db: string;
  continuation: Buffer;
  /** A connection of its own, for results PostgreSQL keeps open. */
  lease?: Lease;
  transaction?: Transaction;
}

export class Cursor {
  busy = false;
  lastUsed = Date.now();
  readonly users: Users;

  constructor(
    readonly id: bigint,
    readonly home: CursorHome,
    close: () => void,
  ) {
    this.users = new Users(close);
  }
}

export class CursorRegistry {
  readonly #cursors = new Map<string, Cursor>();
  // Starts anywhere, so that a cursor of a gateway that has been restarted is not mistaken for a new one.
  #lastId = BigInt(Math.floor(Math.random() * 2 ** 48)) + 1n;

  nextId(): bigint {
    return ++this.#lastId;
  }

  add(id: bigint, home: CursorHome, connection: ClientConnection): void {
    const key = String(id);
    const cursor = new Cursor(id, home, () => void this.close(key));
    this.#cursors.set(key, cursor);
    cursor.users.add(connection);
    home.transaction?.onEnd(() => void this.close(key));
  }

  /** Takes the cursor for one batch: two at once would get the same rows. */
  async use<T>(id: string, connection: ClientConnection, work: (cursor: Cursor) => Promise<T>): Promise<T> {
    const cursor = this.#cursors.get(id);
    if (!cursor) throw new CommandError(Code.CursorNotFound, `cursor id ${id} not found`);
    if (cursor.busy) throw new CommandError(Code.CursorInUse, `cursor id ${id} is already in use`);
    cursor.busy = true;
    cursor.users.add(connection);
    try {
      return await work(cursor);
    } catch (error) {
      await this.close(id);
      throw error;
    } finally {
      cursor.busy = false;
      cursor.lastUsed = Date.now();
    }
  }

  /** True when there was one to close. */
  async close(id: string): Promise<boolean> {
    const cursor = this.#cursors.get(id);
    if (!cursor) return false;
    this.#cursors.delete(id);
    cursor.users.clear();
    const { lease } = cursor.home;
    if (lease) {
      if (cursor.busy) lease.cancel();
      await lease.command('CLOSE ALL').catch(() => undefined); // broken: it is not given back to the pool then
      await lease.release();
    }
    return true;
  }

  async reap(): Promise<void> {
    const now = Date.now();
    const idle = [...this.#cursors].filter(([, cursor]) => !cursor.busy && now - cursor.lastUsed > IDLE_MS);
    await Promise.all(idle.map(([id]) => this.close(id)));
  }

  async closeAll(): Promise<void> {
    await Promise.all([...this.#cursors.keys()].map((id) => this.close(id)));
  }
}
