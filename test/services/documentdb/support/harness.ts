// A gateway of the test's own, in this process and on a free port, in front of the machine's PostgreSQL; clients of the
// official driver; and a look at PostgreSQL from the side. Everything is closed and dropped at the end.
import { afterAll, beforeAll, describe, it } from '@jest/globals';
import mongoose from 'mongoose';
import type { mongo } from 'mongoose';
import pg from 'pg';
import { startGateway } from '../../../../scripts/services/documentdb/gateway.js';
import type { Gateway, GatewayOptions } from '../../../../scripts/services/documentdb/gateway.js';
import { documentDbUnavailable, startPostgres } from '../../../../scripts/services/documentdb/install.js';

export class Harness {
  gateway!: Gateway;
  client!: mongo.MongoClient;
  db!: mongo.Db;
  pgPort = 0;
  #side!: pg.Client;
  readonly #clients: mongo.MongoClient[] = [];
  readonly #name = `gw_${process.pid}_${Math.random().toString(36).slice(2, 8)}`;

  async start(options: Partial<GatewayOptions>): Promise<void> {
    this.pgPort = (await startPostgres({ log: console.log })).port;
    this.gateway = await startGateway({ port: 0, pgPort: this.pgPort, connections: 40, ...options });
    this.client = await this.connect();
    this.db = this.client.db(this.#name);
    this.#side = new pg.Client({ host: '127.0.0.1', port: this.pgPort, user: 'postgres', database: 'postgres' });
    await this.#side.connect();
  }

  async connect(uri = this.gateway.uri, options: mongo.MongoClientOptions = {}): Promise<mongo.MongoClient> {
    const client = await new mongoose.mongo.MongoClient(uri, { serverSelectionTimeoutMS: 5_000, ...options }).connect();
    this.#clients.push(client);
    return client;
  }

  /** The test's database, as another client sees it. */
  of(client: mongo.MongoClient): mongo.Db {
    return client.db(this.#name);
  }

  async sql(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
    return (await this.#side.query<Record<string, unknown>>(text, values)).rows;
  }

  /** Statements of this process's gateways that wait for a lock. */
  async waiting(): Promise<number> {
    const rows = await this.sql(
      `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`,
      [`documentdb gateway ${process.pid}`],
    );
    return rows.length;
  }

  /** PostgreSQL transactions that this process's gateways have open. */
  async open(): Promise<number> {
    const rows = await this.sql(
      `SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND state LIKE 'idle in transaction%'`,
      [`documentdb gateway ${process.pid}`],
    );
    return rows.length;
  }

  async endBackends(): Promise<void> {
    await this.sql('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = $1', [
      `documentdb gateway ${process.pid}`,
    ]);
  }

  async stop(): Promise<void> {
    await this.db?.dropDatabase();
    await Promise.all(this.#clients.map((client) => client.close(true)));
    await this.#side?.end();
    await this.gateway?.close();
  }
}

/** PostgreSQL is a foreign process: what it is doing can only be asked, again and again. */
export async function until(condition: () => Promise<boolean>, what: string, deadlineMs = 10_000): Promise<void> {
  const deadline = Date.now() + deadlineMs;
  while (!(await condition())) {
    if (Date.now() > deadline) throw new Error(`${what}: not within ${deadlineMs} ms`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export async function failure<T = mongo.MongoServerError>(work: Promise<unknown>): Promise<T> {
  try {
    await work;
  } catch (error) {
    return error as T;
  }
  throw new Error('it did not fail');
}

/** Tests of the gateway, where DocumentDB can be had. */
export function describeGateway(
  name: string,
  body: (harness: Harness) => void,
  options: Partial<GatewayOptions> = {},
): void {
  const reason = documentDbUnavailable();
  describe(name, () => {
    if (reason) {
      it(`cannot be tried here: ${reason}`, () => {});
      return;
    }
    const harness = new Harness();
    beforeAll(() => harness.start(options), 240_000);
    afterAll(() => harness.stop());
    body(harness);
  });
}
