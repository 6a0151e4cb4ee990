// The shared MongoDB of the development services: a real mongod, else DocumentDB behind our gateway.
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { oneAtATime } from '../debian.packages.js';
import { documentDbUnavailable, startPostgres } from '../documentdb/install.js';
import { freePort, LOOPBACK } from '../loopback.port.js';
import { launch } from '../process.launch.js';
import type { Provider } from '../services.types.js';
import { mongodUnavailable } from './mongod.binary.js';

const CHECKOUT = fileURLToPath(new URL('../../..', import.meta.url));
const MEMORY_SERVER = 'scripts/services/mongo/memory_server.main.ts';
const GATEWAY = 'scripts/services/documentdb/gateway.main.ts';
const DEFAULT_PORT = 27017;
// The first start may download the server's archive.
const DOWNLOAD_AND_START_MS = 180_000;
const GATEWAY_START_MS = 30_000;

const typescript = (script: string, ...args: string[]) => ({
  command: process.execPath,
  args: ['--import', 'tsx', script, ...args],
  cwd: CHECKOUT,
});

export const memoryServer: Provider = {
  name: 'mongodb-memory-server',
  unavailable: mongodUnavailable,
  async start({ folder, log }) {
    log('starting a mongod (its first start downloads it)');
    const { pid, ready } = await launch({
      ...typescript(MEMORY_SERVER, String(await freePort(DEFAULT_PORT))),
      logFile: join(folder, 'mongod.log'),
      ready: /^ready (\S+)$/m,
      deadlineMs: DOWNLOAD_AND_START_MS,
    });
    return { address: ready[1] ?? '', pids: [pid] };
  },
};

export const documentDb: Provider = {
  name: 'DocumentDB',
  stamp: () => sourceHash(join(CHECKOUT, 'scripts/services/documentdb')),
  unavailable: async () => documentDbUnavailable(),
  async start({ folder, log }) {
    const postgres = await oneAtATime(() => startPostgres({ log }));
    const port = await freePort(DEFAULT_PORT);
    mkdirSync(folder, { recursive: true });
    const gateway = await launch({
      ...typescript(GATEWAY, '--port', String(port), '--pg-port', String(postgres.port)),
      logFile: join(folder, 'documentdb_gateway.log'),
      ready: /^listening (\d+)$/m,
      deadlineMs: GATEWAY_START_MS,
    });
    const address = `mongodb://${LOOPBACK}:${port}/?replicaSet=rs0`;
    return { address, pids: [gateway.pid], keptPids: [postgres.pid] };
  },
};

function sourceHash(folder: string): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' }).sort()) {
    if (name.endsWith('.ts')) hash.update(name).update(readFileSync(join(folder, name)));
  }
  return hash.digest('hex').slice(0, 16);
}
