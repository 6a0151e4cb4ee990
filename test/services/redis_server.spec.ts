import { afterEach, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LOOPBACK, portOf } from '../../scripts/services/loopback.port.js';
import { end, recordOf } from '../../scripts/services/process.birth.js';
import { redisServer } from '../../scripts/services/redis/redis.provider.js';

async function ask(port: number, command: string): Promise<string> {
  const socket = connect({ port, host: LOOPBACK });
  socket.write(`${command}\r\n`);
  const [answer] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  return answer.toString();
}

describe('a Redis server of our own', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sidelane-redis-'));
  let pids: number[] = [];

  afterEach(async () => {
    for (const pid of pids) await end(recordOf(pid));
    rmSync(folder, { recursive: true, force: true });
  });

  it('serves on loopback, evicts nothing and keeps nothing on disk', async () => {
    const started = await redisServer.start({ folder, log: () => undefined });
    pids = started.pids;
    const port = portOf(started.address);
    expect(await ask(port, 'PING')).toBe('+PONG\r\n');
    expect(await ask(port, 'CONFIG GET bind')).toContain('127.0.0.1');
    expect(await ask(port, 'CONFIG GET maxmemory-policy')).toContain('noeviction');
    expect(await ask(port, 'CONFIG GET save')).toMatch(/save\r\n\$0\r\n/);
    for (const pid of pids) await end(recordOf(pid));
    pids = [];
    expect(readdirSync(folder)).toEqual(['redis.log']);
  });
});
