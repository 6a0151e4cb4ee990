// Tells whether a pid is still the process that it was, so that nobody else's process is ever ended. Only looks, and
// signals what it recognised; a process that has exited but was not reaped yet counts as gone.
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import type { ProcessRecord } from './services.types.js';

const STOP_GRACE_MS = 10_000;
const POLL_MS = 25;

export const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** When the process began, on this boot of this machine; undefined when there is no such process. */
export function birthOf(pid: number): string | undefined {
  return existsSync('/proc/self/stat') ? birthFromProc(pid) : birthFromPs(pid);
}

function birthFromProc(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command name stands in brackets and may hold spaces and brackets itself: count from its end.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // A killed process of many threads looks dead by its first one while the others still hold its ports.
    if (fields[0] === 'Z' && readdirSync(`/proc/${pid}/task`).length <= 1) return undefined;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}:${fields[19]}`;
  } catch {
    return undefined;
  }
}

function birthFromPs(pid: number): string | undefined {
  try {
    const line = execFileSync('ps', ['-o', 'stat=,lstart=', '-p', String(pid)], { encoding: 'utf8' }).trim();
    const [stat, ...start] = line.split(/\s+/);
    return stat === undefined || stat.startsWith('Z') ? undefined : start.join(' ');
  } catch {
    return undefined;
  }
}

export function recordOf(pid: number): ProcessRecord {
  const birth = birthOf(pid);
  if (birth === undefined) throw new Error(`process ${pid} ended right after its start`);
  return { pid, birth };
}

export const isAlive = (record: ProcessRecord): boolean => birthOf(record.pid) === record.birth;

/** Sends the signal if the pid is still that process; tells whether it was. */
export function signal(record: ProcessRecord, name: NodeJS.Signals): boolean {
  if (!isAlive(record)) return false;
  try {
    process.kill(record.pid, name);
    return true;
  } catch {
    return false;
  }
}

/** Ends the process and waits until it is gone; one that does not heed the first signal is killed. */
export async function end(record: ProcessRecord, first: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (!signal(record, first)) return;
  // A frozen process gets no other signal before it runs again.
  signal(record, 'SIGCONT');
  const deadline = Date.now() + STOP_GRACE_MS;
  while (isAlive(record)) {
    if (Date.now() > deadline) signal(record, 'SIGKILL');
    await pause(POLL_MS);
  }
}
