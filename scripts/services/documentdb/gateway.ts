// Promises: a server that speaks MongoDB's wire protocol in front of PostgreSQL with the DocumentDB extension; ready when
// the promise resolves, gone when closed, with nothing left open in PostgreSQL. A development tool: no authentication, so
// it listens on loopback only.
import { CursorRegistry } from './cursor.registry.js';
import type { Services } from './command.scope.js';
import { PostgresPool } from './postgres.pool.js';
import { SessionRegistry } from './session.registry.js';
import { WireServer } from './wire.server.js';

export interface GatewayOptions {
  /** 0 takes any free port. */
  port: number;
  pgPort: number;
  /** Name of the one-member replica set it says it is. */
  set?: string;
  /** Transactions that nobody used for so long are rolled back. */
  idleTransactionMs?: number;
  reapEveryMs?: number;
  /** Connections to PostgreSQL: each open transaction, open cursor and running command takes one. */
  connections?: number;
}

export interface Gateway {
  port: number;
  uri: string;
  close(): Promise<void>;
}

const WARM_CONNECTIONS = 4;

export async function startGateway(options: GatewayOptions): Promise<Gateway> {
  const { port, pgPort, set = 'rs0', idleTransactionMs = 60_000, reapEveryMs = 1_000, connections = 100 } = options;
  const services: Services = {
    pool: new PostgresPool({ port: pgPort, connections }),
    sessions: new SessionRegistry(),
    cursors: new CursorRegistry(),
    identity: { address: '', set },
  };
  const server = new WireServer(services);
  try {
    await services.pool.warm(1); // fails now rather than at the first command when PostgreSQL cannot be reached
    services.identity.address = `127.0.0.1:${await server.listen(port)}`;
  } catch (error) {
    await services.pool.close();
    throw error;
  }
  const warming = services.pool.warm(WARM_CONNECTIONS).catch(() => undefined);
  const reaper = setInterval(() => {
    void services.sessions.reap(idleTransactionMs);
    void services.cursors.reap();
  }, reapEveryMs);
  return {
    port: Number(services.identity.address.split(':')[1]),
    uri: `mongodb://${services.identity.address}/?replicaSet=${set}`,
    close: async () => {
      clearInterval(reaper);
      await server.close();
      await Promise.all([services.sessions.endAll(), services.cursors.closeAll(), warming]);
      await services.pool.close();
    },
  };
}
