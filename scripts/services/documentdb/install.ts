// Promises: PostgreSQL 18 with the DocumentDB extension, from Debian's packages, in a folder of its own, running on loopback;
// at once when it runs already, one or two minutes and 700 MB the first time. Must never touch the machine's own
// packages (except for the tool that unpacks Debian into a folder) nor a PostgreSQL that is not in its folder.
import { execFile } from 'node:child_process';
import { appendFile, mkdir, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const BIN = '/usr/lib/postgresql/18/bin';
const SUITE = 'sid';
const MIRROR = 'http://deb.debian.org/debian';
const DATA = '/pg/data';
const NEW_DATA = '/pg/data.partial';
const START_ATTEMPTS = 20;
const SETTINGS = 'sidelane.conf';

export const DEFAULT_ROOT = '/var/lib/sidelane-dev/documentdb';
export const DEFAULT_PORT = 9712;

export interface StartOptions {
  root?: string;
  port?: number;
  /** Written to disk before a commit is answered: for tests that kill the database. */
  durable?: boolean;
  log: (line: string) => void;
}

/** Why this machine cannot install it; undefined when it can. */
export function documentDbUnavailable(): string | undefined {
  if (process.platform !== 'linux') return `DocumentDB comes as Debian packages; this is ${process.platform}`;
  if (process.getuid?.() !== 0) return 'DocumentDB is installed into a folder with chroot, which only root may do';
  if (!onPath('apt-get') && !onPath('mmdebstrap'))
    return 'DocumentDB comes as Debian packages; there is no apt-get here';
  return undefined;
}

export async function startPostgres(options: StartOptions): Promise<{ port: number; pid: number }> {
  const { root = DEFAULT_ROOT, port = DEFAULT_PORT, durable = false, log } = options;
  const running = await pidOf(root);
  if (running && (await accepts(root, port))) return { port, pid: running };
  if (!existsSync(join(root, BIN, 'postgres'))) await unpack(root, log);
  if (!existsSync(join(root, DATA, 'PG_VERSION'))) await initialise(root);
  await writeSettings(root, port, durable);
  await launch(root, port, log);
  const pid = await pidOf(root);
  if (!pid) throw new Error(`PostgreSQL started in ${root}, but its process is gone: see ${join(root, 'pg/log')}`);
  return { port, pid };
}

async function unpack(root: string, log: StartOptions['log']): Promise<void> {
  if (!onPath('mmdebstrap')) {
    log('installing mmdebstrap');
    await run('apt-get', ['update', '-qq']);
    await run('apt-get', ['install', '-y', '-qq', 'mmdebstrap'], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
  }
  log(`unpacking PostgreSQL 18 with DocumentDB into ${root} (one or two minutes and 700 MB, once)`);
  await mkdir(dirname(root), { recursive: true });
  // Into a folder beside it, so that an interrupted installation is never taken for a whole one.
  const partial = `${root}.partial`;
  await run('rm', ['-rf', '--one-file-system', partial]);
  await run('mmdebstrap', [
    '--quiet',
    '--variant=minbase',
    // The mirror may be a frozen copy, so its validity date is not checked; its signatures are.
    '--aptopt=Acquire::Check-Valid-Until "false"',
    '--include=postgresql-18-documentdb',
    SUITE,
    partial,
    MIRROR,
  ]);
  await rename(partial, root);
}

async function initialise(root: string): Promise<void> {
  await mkdir(join(root, 'pg'), { recursive: true });
  await run('chroot', [root, 'chown', 'postgres:postgres', '/pg']);
  await run('rm', ['-rf', join(root, NEW_DATA)]);
  await asPostgres(root, [`${BIN}/initdb`, '-D', NEW_DATA, '-A', 'trust', '-U', 'postgres', '--no-sync']);
  await rename(join(root, NEW_DATA), join(root, DATA));
}

async function writeSettings(root: string, port: number, durable: boolean): Promise<void> {
  const sync = durable ? 'on' : 'off';
  const main = join(root, DATA, 'postgresql.conf');
  // A file of their own, last and so the one that counts, written anew at every start.
  if (!(await readFile(main, 'utf8')).includes(SETTINGS)) await appendFile(main, `include = '${SETTINGS}'\n`);
  const lines = [
    "shared_preload_libraries = 'pg_cron,pg_documentdb_core,pg_documentdb,pg_documentdb_extended_rum'",
    // The index type that reads in order: without it every sorted read sorts all that matches.
    "documentdb.rum_library_load_option = 'require_documentdb_extended_rum'",
    "documentdb.alternate_index_handler_name = 'extended_rum'",
    "cron.database_name = 'postgres'",
    "listen_addresses = '127.0.0.1'",
    `port = ${port}`,
    'max_connections = 300',
    'shared_buffers = 512MB',
    `fsync = ${sync}`,
    `synchronous_commit = ${sync}`,
    `full_page_writes = ${sync}`,
    // A queue's tables are all churn, and dead index entries slow every read until a vacuum: vacuum often.
    'autovacuum_naptime = 5s',
    'autovacuum_vacuum_scale_factor = 0.01',
    'autovacuum_vacuum_cost_delay = 0',
  ];
  await writeFile(join(root, DATA, SETTINGS), `${lines.join('\n')}\n`, { mode: 0o644 });
}

async function launch(root: string, port: number, log: StartOptions['log']): Promise<void> {
  await mkdir(join(root, 'run/postgresql'), { recursive: true });
  await run('chroot', [root, 'chown', 'postgres:postgres', '/run/postgresql']);
  if (!(await pidOf(root))) log(`starting PostgreSQL on 127.0.0.1:${port}`);
  for (let attempt = 1; !(await pidOf(root)); attempt++) {
    try {
      await asPostgres(root, [`${BIN}/pg_ctl`, '-D', DATA, '-l', '/pg/log', '-w', '-t', '60', 'start']);
    } catch (error) {
      // The processes of one that was killed hold its memory for another moment.
      if (attempt === START_ATTEMPTS) throw new Error(`PostgreSQL did not start: see ${root}/pg/log`, { cause: error });
      await delay(500);
    }
  }
  for (const extension of ['documentdb CASCADE', 'documentdb_extended_rum']) {
    await psql(root, port, `SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS ${extension}`);
  }
}

async function accepts(root: string, port: number): Promise<boolean> {
  return psql(root, port, "SELECT 1 FROM pg_extension WHERE extname = 'documentdb_extended_rum'").then(
    (found) => found.trim() === '1',
    () => false,
  );
}

async function psql(root: string, port: number, sql: string): Promise<string> {
  const { stdout } = await run('chroot', [
    root,
    'psql',
    '-qAt',
    '-h',
    '127.0.0.1',
    '-p',
    `${port}`,
    '-U',
    'postgres',
    '-c',
    sql,
  ]);
  return stdout;
}

async function asPostgres(root: string, command: string[]): Promise<void> {
  await run('chroot', ['--userspec=postgres', root, ...command]);
}

/** The postmaster of that folder, if it runs. */
async function pidOf(root: string): Promise<number | undefined> {
  try {
    const pid = Number((await readFile(join(root, DATA, 'postmaster.pid'), 'utf8')).split('\n')[0]);
    await stat(`/proc/${pid}`);
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8');
    return command.includes('postgres') && command.includes(DATA) ? pid : undefined;
  } catch {
    return undefined;
  }
}

function onPath(program: string): boolean {
  return (process.env.PATH ?? '').split(':').some((folder) => {
    try {
      accessSync(join(folder, program), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
