/**
 * A database server of a scenario's own, in which a commit that was answered stands on disk: DocumentDB's PostgreSQL with
 * its own data folder, and the gateway in front of it. Can be killed as a power cut would (every process at once, nothing
 * closed) and started again on the same data. Ends with the process that opened it, and leaves nothing behind.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { DEFAULT_ROOT, documentDbUnavailable, startPostgres } from '../../../scripts/services/documentdb/install.js';
import { freePort } from '../../../scripts/services/loopback.port.js';
import { birthOf, end, isAlive, recordOf } from '../../../scripts/services/process.birth.js';
import { launch } from '../../../scripts/services/process.launch.js';
import type { ProcessRecord } from '../../../scripts/services/services.types.js';

const run = promisify(execFile);
const CHECKOUT = fileURLToPath(new URL('../../..', import.meta.url));
const GATEWAY = 'scripts/services/documentdb/gateway.main.ts';
const BIN = '/usr/lib/postgresql/18/bin';
const DATA = /^faults-(\d+)-/;
const START_MS = 60_000;

const SETTINGS = [
  "shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb,pg_documentdb_extended_rum'",
  "documentdb.rum_library_load_option = 'require_documentdb_extended_rum'",
  "documentdb.alternate_index_handler_name = 'extended_rum'",
  "cron.database_name = 'postgres'",
  "listen_addresses = '127.0.0.1'",
  "unix_socket_directories = ''",
  'max_connections = 150',
  'shared_buffers = 128MB',
  'fsync = on',
  'synchronous_commit = on',
  'full_page_writes = on',
];

export class DurableDatabase {
  private gateway: ProcessRecord | undefined;
  private postgres: ProcessRecord | undefined;

  private constructor(
    private readonly root: string,
    /** Its data, as PostgreSQL sees it inside of the root. */
    private readonly data: string,
    private readonly postgresPort: number,
    readonly port: number,
    private readonly logs: string,
  ) {}

  /** Why there can be none here. */
  static unavailable(): string | undefined {
    return documentDbUnavailable();
  }

  static async open(): Promise<DurableDatabase> {
    await startPostgres({ log: () => undefined }); // unpacks it where nobody did before
    const root = DEFAULT_ROOT;
    removeOrphans(root);
    const data = `/pg/faults-${process.pid}-${randomUUID().slice(0, 8)}`;
    const logs = mkdtempSync(join(tmpdir(), 'sidelane-faults-database-'));
    const database = new DurableDatabase(root, data, await freePort(), await freePort(), logs);
    const initdb = [`${BIN}/initdb`, '-D', data, '-A', 'trust', '-U', 'postgres', '--no-sync'];
    await run('chroot', ['--userspec=postgres', root, ...initdb]);
    const settings = [...SETTINGS, `port = ${database.postgresPort}`];
    writeFileSync(join(root, data, 'postgresql.auto.conf'), `${settings.join('\n')}\n`);
    await database.startPostgres();
    for (const extension of ['documentdb CASCADE', 'documentdb_extended_rum']) {
      await database.sql(`SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS ${extension}`);
    }
    await database.startGateway();
    return database;
  }

  get uri(): string {
    return `mongodb://127.0.0.1:${this.port}/?replicaSet=rs0`;
  }

  /** Everything is gone at once; with `gateway: 'stays'` the clients keep their connections and are told errors. */
  async kill(gateway: 'dies' | 'stays' = 'dies'): Promise<void> {
    const { pid } = this.postgres!;
    const backends = childrenOf(pid).flatMap(recordIfAlive);
    if (gateway === 'dies') await this.killGateway();
    // The one that looks after the others first: it would end them in order.
    for (const each of [pid, ...backends.map((backend) => backend.pid)]) kill(each);
    while ([this.postgres!, ...backends].some(isAlive)) await sleep(10);
    // It names a process that is dead, but that its parent may not have taken note of yet: a server would not start then.
    rmSync(join(this.root, this.data, 'postmaster.pid'), { force: true });
    this.postgres = undefined;
  }

  /** On the same data and ports; resolves when it takes commands. */
  async start(): Promise<void> {
    await this.startPostgres();
    if (!this.gateway) await this.startGateway();
  }

  /** A setting, as the running server has it. */
  async setting(name: string): Promise<string> {
    return (await this.sql(`SHOW ${name}`)).trim();
  }

  async close(): Promise<void> {
    if (this.gateway) await end(this.gateway, 'SIGKILL');
    if (this.postgres) await this.kill();
    rmSync(join(this.root, this.data), { recursive: true, force: true });
    rmSync(this.logs, { recursive: true, force: true });
  }

  private async startPostgres(): Promise<void> {
    const server = `${BIN}/postgres`;
    // Inside of the root: a change of user would undo the leash.
    const leash = ['setpriv', '--reuid=postgres', '--regid=postgres', '--clear-groups', '--pdeathsig', 'KILL', '--'];
    const { pid } = await launch({
      command: 'chroot',
      args: [this.root, ...leash, server, '-D', this.data],
      logFile: join(this.logs, 'postgres.log'),
      ready: /database system is ready to accept connections/,
      deadlineMs: START_MS,
    });
    this.postgres = recordOf(pid);
  }

  private async startGateway(): Promise<void> {
    const { pid } = await launch({
      command: process.execPath,
      args: ['--import', 'tsx', GATEWAY, '--port', `${this.port}`, '--pg-port', `${this.postgresPort}`],
      cwd: CHECKOUT,
      logFile: join(this.logs, 'gateway.log'),
      ready: /^listening (\d+)$/m,
      deadlineMs: START_MS,
      leashed: true,
    });
    this.gateway = recordOf(pid);
  }

  private async killGateway(): Promise<void> {
    if (!this.gateway) return;
    kill(this.gateway.pid);
    while (isAlive(this.gateway)) await sleep(10);
    this.gateway = undefined;
  }

  private async sql(text: string): Promise<string> {
    const where = ['-qAt', '-h', '127.0.0.1', '-p', `${this.postgresPort}`, '-U', 'postgres'];
    const { stdout } = await run('chroot', [this.root, 'psql', ...where, '-c', text]);
    return stdout;
  }
}

/** Some of a server's processes end by themselves all the time. */
function recordIfAlive(pid: number): ProcessRecord[] {
  const birth = birthOf(pid);
  return birth === undefined ? [] : [{ pid, birth }];
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It ended by itself, because another one of them is gone.
  }
}

function childrenOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
        return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]) === parent;
      } catch {
        return false;
      }
    })
    .map(Number);
}

/** Data of processes that were killed themselves. Their servers ended with them. */
function removeOrphans(root: string): void {
  const folder = join(root, 'pg');
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) {
    const owner = DATA.exec(name)?.[1];
    if (owner && !existsSync(`/proc/${owner}`)) rmSync(join(folder, name), { recursive: true, force: true });
  }
}
