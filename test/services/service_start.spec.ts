import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isAlive, recordOf } from '../../scripts/services/process.birth.js';
import type { Provider, Service, ServiceName } from '../../scripts/services/services.types.js';
import { down, ServiceMissingError, status, up } from '../../scripts/services/services.js';
import { readRecord, writeRecord } from '../../scripts/services/state.store.js';

const IDLE = ['-e', 'setInterval(() => undefined, 1000)'];

describe('starting a service', () => {
  let folder: string;
  let server: Server;
  let address: string;
  let lines: string[];
  const children: number[] = [];
  const log = (line: string): void => void lines.push(line);

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sidelane-state-'));
    server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    address = `redis://127.0.0.1:${(server.address() as AddressInfo).port}`;
    lines = [];
  });

  afterEach(() => {
    for (const pid of children.splice(0)) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // Ended by the test itself.
      }
    }
    server.close();
    rmSync(folder, { recursive: true, force: true });
  });

  function idleProcess(): number {
    const child = spawn(process.execPath, IDLE, { stdio: 'ignore' });
    if (child.pid === undefined) throw new Error('no child');
    children.push(child.pid);
    return child.pid;
  }

  function provider(name: string, extra: Partial<Provider> = {}): Provider & { starts: number } {
    const made = {
      name,
      starts: 0,
      unavailable: async (): Promise<string | undefined> => undefined,
      start: async () => {
        made.starts += 1;
        return { address, pids: [idleProcess()] };
      },
      ...extra,
    };
    return made;
  }

  function surroundings(providers: Provider[], env: NodeJS.ProcessEnv = {}) {
    const service = (name: ServiceName, key: Service['key']): Service => ({
      name,
      title: name,
      variable: `${name.toUpperCase()}_ADDRESS`,
      key,
      providers,
    });
    const catalog = {
      mongo: service('mongo', 'mongoUri'),
      kafka: service('kafka', 'kafkaBrokers'),
      redis: service('redis', 'redisUrl'),
    };
    return { folder, env, catalog };
  }

  it('takes the variable before anything else when it is set', async () => {
    const unused = provider('unused');
    const where = surroundings([unused], { REDIS_ADDRESS: 'redis://elsewhere:1' });
    expect(await up(['redis'], log, where)).toEqual({ redisUrl: 'redis://elsewhere:1' });
    expect(unused.starts).toBe(0);
  });

  it('takes the first provider that is available and starts', async () => {
    const absent = provider('absent', { unavailable: async () => 'not here' });
    const broken = provider('broken', {
      start: async () => {
        throw new Error('it broke');
      },
    });
    const [good, never] = [provider('good'), provider('never')];
    expect(await up(['redis'], log, surroundings([absent, broken, good, never]))).toEqual({ redisUrl: address });
    expect([absent.starts, good.starts, never.starts]).toEqual([0, 1, 0]);
  });

  it('says what is missing in one line that names the variable', async () => {
    const absent = provider('absent', { unavailable: async () => 'not here' });
    const failure = up(['redis'], log, surroundings([absent]));
    await expect(failure).rejects.toThrow(ServiceMissingError);
    await expect(failure).rejects.toThrow(/^redis is missing: set REDIS_ADDRESS to use your own \(absent: not here\)$/);
  });

  it('names every missing service when several are missing', async () => {
    const absent = provider('absent', { unavailable: async () => 'not here' });
    await expect(up(['redis', 'kafka'], log, surroundings([absent]))).rejects.toThrow(
      /REDIS_ADDRESS.*\n.*KAFKA_ADDRESS/,
    );
  });

  it('finds what runs on the second start', async () => {
    const good = provider('good');
    await up(['redis'], log, surroundings([good]));
    await up(['redis'], log, surroundings([good]));
    expect(good.starts).toBe(1);
  });

  it('makes one start of two at the same time', async () => {
    const good = provider('good');
    const both = await Promise.all([1, 2].map(() => up(['redis'], log, surroundings([good]))));
    expect(both).toEqual([{ redisUrl: address }, { redisUrl: address }]);
    expect(good.starts).toBe(1);
  });

  it('takes over the lock of a process that died', async () => {
    writeFileSync(join(folder, 'lock'), JSON.stringify({ pid: 1, birth: 'long ago' }));
    const good = provider('good');
    expect(await up(['redis'], log, surroundings([good]))).toEqual({ redisUrl: address });
  });

  it('tries a failed provider again only after a stop, when a later one worked', async () => {
    let asked = 0;
    const slow = provider('slow', { unavailable: async () => `asked ${++asked}` });
    const where = surroundings([slow, provider('good')]);
    await up(['redis'], log, where);
    await up(['kafka'], log, where);
    expect(asked).toBe(1);
    await down(['redis', 'kafka'], log, where);
    await up(['redis'], log, where);
    expect(asked).toBe(2);
  });

  it('does not remember a failure when nothing worked', async () => {
    let asked = 0;
    const where = surroundings([provider('absent', { unavailable: async () => `asked ${++asked}` })]);
    await expect(up(['redis'], log, where)).rejects.toThrow('asked 1');
    await expect(up(['redis'], log, where)).rejects.toThrow('asked 2');
  });

  it('ignores the record of a process that died', async () => {
    const good = provider('good');
    const where = surroundings([good]);
    writeRecord(folder, 'redis', { provider: 'good', address, processes: [{ pid: 2 ** 22 + 1, birth: 'gone' }] });
    expect(await status(['redis'], where)).toEqual([expect.stringContaining('the next start replaces it')]);
    await up(['redis'], log, where);
    expect(good.starts).toBe(1);
  });

  it('ignores a record that cannot be read', async () => {
    writeFileSync(join(folder, 'redis.json'), '{"provider":');
    const good = provider('good');
    await up(['redis'], log, surroundings([good]));
    expect(good.starts).toBe(1);
  });

  it('replaces a process whose source has changed', async () => {
    let stamp = 'old';
    const stamped = provider('stamped', { stamp: () => stamp });
    const where = surroundings([stamped]);
    await up(['redis'], log, where);
    const [old] = readRecord(folder, 'redis')?.processes ?? [];
    stamp = 'new';
    await up(['redis'], log, where);
    expect(stamped.starts).toBe(2);
    expect(old && isAlive(old)).toBe(false);
  });

  it('ends a process that a provider keeps only on a stop, not for a replacement', async () => {
    let stamp = 'old';
    const kept = idleProcess();
    const start = async () => ({ address, pids: [idleProcess()], keptPids: [kept] });
    const where = surroundings([provider('stamped', { stamp: () => stamp, start })]);
    await up(['redis'], log, where);
    const before = recordOf(kept);
    stamp = 'new';
    await up(['redis'], log, where);
    expect(isAlive(before)).toBe(true);
    await down(['redis'], log, where);
    expect(isAlive(before)).toBe(false);
  });

  it('replaces a process that lives but does not answer', async () => {
    const good = provider('good');
    const where = surroundings([good]);
    const deaf = recordOf(idleProcess());
    server.close();
    await once(server, 'close');
    writeRecord(folder, 'redis', { provider: 'good', address, processes: [deaf] });
    await up(['redis'], log, where);
    expect(good.starts).toBe(1);
    expect(isAlive(deaf)).toBe(false);
  });

  it('ends the processes of its record on a stop', async () => {
    const where = surroundings([provider('good')]);
    await up(['redis'], log, where);
    const [started] = readRecord(folder, 'redis')?.processes ?? [];
    await down(['redis'], log, where);
    expect(started && isAlive(started)).toBe(false);
    expect(readRecord(folder, 'redis')).toBeUndefined();
    expect(lines.at(-1)).toBe('redis: ended');
  });

  it('never ends a foreign process that was given a recorded pid', async () => {
    const foreign = recordOf(idleProcess());
    const where = surroundings([provider('good')]);
    writeRecord(folder, 'redis', { provider: 'good', address, processes: [{ pid: foreign.pid, birth: 'another' }] });
    await down(['redis'], log, where);
    expect(isAlive(foreign)).toBe(true);
    expect(lines.at(-1)).toBe('redis: was not running');
  });
});
