// A Redis server of our own: nothing on disk, loopback only.
import { join } from 'node:path';
import { ensure, lacking } from '../debian.packages.js';
import { freePort, LOOPBACK } from '../loopback.port.js';
import { launch } from '../process.launch.js';
import type { Provider } from '../services.types.js';

const DEFAULT_PORT = 6379;
const START_MS = 15_000;

export const redisServer: Provider = {
  name: 'redis-server',
  unavailable: async () => lacking('redis-server'),
  async start({ folder, log }) {
    const command = await ensure('redis-server', ['redis-server'], log);
    const port = await freePort(DEFAULT_PORT);
    const where = ['--port', String(port), '--bind', LOOPBACK, '--dir', folder];
    const { pid } = await launch({
      command,
      // Bull's own requirement: a queue's keys must not be evicted.
      args: [...where, '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction'],
      logFile: join(folder, 'redis.log'),
      ready: /Ready to accept connections/,
      deadlineMs: START_MS,
    });
    return { address: `redis://${LOOPBACK}:${port}`, pids: [pid] };
  },
};
