/** Private Redis servers for tests that harm them: on loopback, nothing on disk, gone with the test process. */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePort, LOOPBACK } from '../../scripts/services/loopback.port.js';
import { end, recordOf } from '../../scripts/services/process.birth.js';
import { launch } from '../../scripts/services/process.launch.js';

export class TestRedis {
  private pid: number | undefined;
  private readonly folder = mkdtempSync(join(tmpdir(), 'sidelane-redis-'));

  private constructor(
    readonly port: number,
    private readonly args: readonly string[],
  ) {}

  static async start(...args: string[]): Promise<TestRedis> {
    const server = new TestRedis(await freePort(), args);
    await server.start();
    return server;
  }

  /** A server that is not started yet: its port is known and refuses. */
  static async absent(): Promise<TestRedis> {
    return new TestRedis(await freePort(), []);
  }

  get url(): string {
    return `redis://${LOOPBACK}:${this.port}`;
  }

  async start(): Promise<void> {
    const where = ['--port', String(this.port), '--bind', LOOPBACK, '--dir', this.folder];
    const { pid } = await launch({
      command: 'redis-server',
      args: [...where, '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction', ...this.args],
      logFile: join(this.folder, 'redis.log'),
      ready: /Ready to accept connections/,
      deadlineMs: 15_000,
      leashed: true,
    });
    this.pid = pid;
  }

  /** It answers nothing until `resume()`, and its connections stay open. */
  freeze(): void {
    process.kill(this.pid!, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.pid!, 'SIGCONT');
  }

  async stop(): Promise<void> {
    if (this.pid !== undefined) await end(recordOf(this.pid), 'SIGKILL');
    this.pid = undefined;
  }

  async dispose(): Promise<void> {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Takes connections and never says a word. */
export class BlackHole {
  private readonly sockets = new Set<Socket>();

  private constructor(private readonly server: Server) {
    server.on('connection', (socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => this.sockets.delete(socket));
      socket.resume();
    });
  }

  static async open(): Promise<BlackHole> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, LOOPBACK, resolve));
    return new BlackHole(server);
  }

  get url(): string {
    return `redis://${LOOPBACK}:${(this.server.address() as AddressInfo).port}`;
  }

  get connections(): number {
    return this.sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
