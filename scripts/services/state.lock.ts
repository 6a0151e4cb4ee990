// One start at a time per state folder. The lock is a file that names its holder; the lock of a dead holder is taken
// over. Never removes the lock of a living one.
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isAlive, pause, recordOf } from './process.birth.js';
import type { Log, ProcessRecord } from './services.types.js';

const POLL_MS = 100;

export async function withLock<T>(folder: string, log: Log, work: () => Promise<T>): Promise<T> {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, 'lock');
  const mine = JSON.stringify(recordOf(process.pid));
  let told = false;
  while (!tryTake(file, mine)) {
    if (!told) log('waiting for another start of the services to end');
    told = true;
    await pause(POLL_MS);
  }
  try {
    return await work();
  } finally {
    rmSync(file, { force: true });
  }
}

function tryTake(file: string, mine: string): boolean {
  // A linked draft appears with its content: nobody can read a lock that does not name its holder yet.
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, mine);
  try {
    linkSync(draft, file);
    return true;
  } catch {
    removeStale(file);
    return false;
  } finally {
    rmSync(draft, { force: true });
  }
}

function removeStale(file: string): void {
  const seen = holderOf(file);
  if (seen === undefined || isAlive(seen)) return;
  const aside = `${file}.stale.${process.pid}`;
  try {
    renameSync(file, aside);
    const moved = holderOf(aside);
    // Another waiter may have replaced the stale lock between our look and our move: then put the living one back.
    if (moved !== undefined && isAlive(moved)) linkSync(aside, file);
  } catch {
    // Someone else removed it first; the next round sees what is there now.
  } finally {
    rmSync(aside, { force: true });
  }
}

function holderOf(file: string): ProcessRecord | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as ProcessRecord;
  } catch {
    return undefined;
  }
}
