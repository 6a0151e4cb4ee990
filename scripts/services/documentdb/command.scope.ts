// Promises: a command's statements run where it belongs, in its transaction or on any connection, stop at its maxTimeMS and
// when its client has gone, and outside of transactions run again after a conflict, as a server does for plain writes.
// Must never retry inside a transaction: its snapshot would only conflict again.
import { setTimeout as delay } from 'node:timers/promises';
import type { Document } from './bson.codec.js';
import type { ClientConnection } from './client.connection.js';
import type { CursorRegistry } from './cursor.registry.js';
import { isCatalogRace, isConflict } from './errors.js';
import type { PostgresError } from './errors.js';
import type { Lease, PostgresPool, Row, Statement } from './postgres.pool.js';
import type { SessionRegistry } from './session.registry.js';
import type { Transaction } from './transaction.js';

const MAX_CONFLICTS = 1_000;
const MAX_CATALOG_RACES = 30;

export interface Services {
  pool: PostgresPool;
  sessions: SessionRegistry;
  cursors: CursorRegistry;
  /** What `hello` says of the server. */
  identity: { address: string; set: string };
}

export interface Command {
  name: string;
  db: string;
  /** The command, decoded and as it came. */
  body: Document;
  bytes: Buffer;
  sequence?: Buffer;
  connection: ClientConnection;
}

export class Scope {
  constructor(
    readonly services: Services,
    readonly command: Command,
    readonly transaction?: Transaction,
  ) {}

  query(what: Statement, values: unknown[]): Promise<Row[]> {
    if (this.transaction) return this.transaction.run((lease) => this.on(lease, what, values));
    return this.retried(() => this.services.pool.run((lease) => this.on(lease, what, values)));
  }

  /** The document that a function of the extension gives back. */
  async document(what: Statement, values: unknown[]): Promise<Buffer> {
    return documentOf(await this.query(what, values));
  }

  async on(lease: Lease, what: Statement, values: unknown[]): Promise<Row[]> {
    const { connection, body } = this.command;
    const limit = Number(body.maxTimeMS ?? 0);
    const timer = limit > 0 ? setTimeout(() => lease.cancel(), limit) : undefined;
    try {
      return await connection.watch(lease, () => lease.query(what, values));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Runs again what failed by a conflict, as long as somebody waits for it. */
  async retried<T>(work: () => Promise<T>): Promise<T> {
    for (let attempt = 0; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        const limit = isCatalogRace(error as PostgresError) ? MAX_CATALOG_RACES : MAX_CONFLICTS;
        if (!isConflict(error) || attempt >= limit || !this.command.connection.open) throw error;
        await backOff(attempt);
      }
    }
  }
}

export function documentOf(rows: Row[]): Buffer {
  return Object.values(rows[0] ?? {})[0] as Buffer;
}

/** Those that met once should not meet again at once. */
export async function backOff(attempt: number): Promise<void> {
  await delay(Math.random() * Math.min(2 ** attempt, 50));
}
