// Promises: statements on warm connections of one PostgreSQL, BSON columns as bytes, and a way to stop a statement that
// nobody waits for any more. Must never give a connection back to the pool while a cancellation may still hit it: it would
// stop the next one's statement.
import pg from 'pg';
import type { PostgresError } from './errors.js';
import { isConnectionLoss } from './errors.js';

export type Row = Record<string, Buffer | string | null>;

export interface Statement {
  name: string;
  text: string;
}

let statements = 0;
/** Named statements are parsed once per connection. */
export function statement(text: string): Statement {
  return { name: `s${++statements}`, text };
}

/** Results come as text: node-postgres reads every column as UTF-8, which destroys binary BSON. */
const TYPES = {
  getTypeParser: () => (value: string) => (value.startsWith('BSONHEX') ? Buffer.from(value.slice(7), 'hex') : value),
};

export class Lease {
  #cancelled?: Promise<unknown>;
  #broken = false;

  constructor(
    private readonly client: pg.PoolClient,
    private readonly control: pg.Pool,
  ) {}

  async query(what: Statement, values: unknown[] = []): Promise<Row[]> {
    try {
      const result = await this.client.query<Row>({ name: what.name, text: what.text, values, types: TYPES });
      return result.rows;
    } catch (error) {
      if (isConnectionLoss((error as PostgresError).code)) this.#broken = true;
      throw error;
    }
  }

  /** Statements without values, in one round trip; gives the tag of a single one ('COMMIT'). */
  async command(text: string): Promise<string> {
    try {
      return (await this.client.query(text)).command;
    } catch (error) {
      this.#broken = true;
      throw error;
    }
  }

  cancel(): void {
    const { processID } = this.client as unknown as { processID: number };
    this.#cancelled ??= this.control.query('SELECT pg_cancel_backend($1)', [processID]).catch(() => undefined);
  }

  get cancelled(): boolean {
    return this.#cancelled !== undefined;
  }

  async release(): Promise<void> {
    await this.#cancelled;
    this.client.release(this.#broken || this.cancelled);
  }
}

export interface PostgresOptions {
  port: number;
  connections: number;
}

/** How its connections show in pg_stat_activity. */
const APPLICATION = `documentdb gateway ${process.pid}`;

export class PostgresPool {
  readonly #pool: pg.Pool;
  /** A way in when every other connection is busy or blocked: for what others wait for to go on. */
  readonly #control: pg.Pool;

  constructor({ port, connections }: PostgresOptions) {
    const address = { host: '127.0.0.1', port, user: 'postgres', database: 'postgres', application_name: APPLICATION };
    this.#pool = new pg.Pool({
      ...address,
      max: connections,
      idleTimeoutMillis: 0, // a fresh backend costs about 100 ms of CPU on its first call
      options: [
        '-c search_path=documentdb_api_catalog,documentdb_api,public',
        '-c deadlock_timeout=10ms', // sorted find-and-modify deadlocks under concurrency; soon found, soon retried
        '-c documentdb.batchUpdateLockTimeoutMs=2147483647', // a plain write waits for a transaction as long as it takes
        '-c client_connection_check_interval=5s', // statements of a gateway that was killed end with it
        '-c jit=off',
      ].join(' '),
    });
    this.#control = new pg.Pool({ ...address, max: 2, idleTimeoutMillis: 10_000 });
    for (const pool of [this.#pool, this.#control]) {
      pool.on('error', () => {}); // an idle connection broke: the pool replaces it
      pool.on('connect', (client) => client.on('error', () => {})); // one in use broke: its next statement says so
    }
  }

  async lease(): Promise<Lease> {
    return new Lease(await this.#pool.connect(), this.#control);
  }

  async run<T>(work: (lease: Lease) => Promise<T>): Promise<T> {
    const lease = await this.lease();
    try {
      return await work(lease);
    } finally {
      await lease.release();
    }
  }

  /** A short statement that must not wait for a connection that others hold: the blocked may be waiting for us. */
  async aside(what: Statement, values: unknown[]): Promise<Row[]> {
    return (await this.#control.query<Row>({ ...what, values, types: TYPES })).rows;
  }

  /** Opens connections and lets each load the extension, so that no client pays for it. */
  async warm(count: number): Promise<void> {
    const touch = statement(
      `SELECT document FROM documentdb_api.count_query('admin', '{"count": "none"}'::documentdb_core.bson)`,
    );
    await Promise.all(Array.from({ length: count }, () => this.run((lease) => lease.query(touch))));
  }

  async close(): Promise<void> {
    await this.#pool.end();
    await this.#control.end(); // last: what is still running may have to be cancelled through it
  }
}
