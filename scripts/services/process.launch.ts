// Starts a program, writes what it says into a log file and returns when it has said that it is ready. A program that
// ends early or stays silent until the deadline is an error that carries the end of its log; it is never left running.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync } from 'node:fs';
import { end, pause, recordOf } from './process.birth.js';

export interface Launch {
  command: string;
  args: string[];
  env?: NodeJS.ProcessEnv;
  cwd?: string;
  logFile: string;
  ready: RegExp;
  deadlineMs: number;
  /** The program ends with us, even when we are killed; without it the program outlives us. */
  leashed?: boolean;
}

export interface Launched {
  pid: number;
  ready: RegExpExecArray;
}

const POLL_MS = 20;
const LOG_TAIL_CHARS = 600;
const SETPRIV = '/usr/bin/setpriv';

export async function launch(what: Launch): Promise<Launched> {
  const child = spawnInto(what);
  const failed = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(`it ended with ${signal ?? `code ${code}`}`));
  });
  const state: { failure?: string } = {};
  void failed.then((reason) => (state.failure = reason));
  const deadline = Date.now() + what.deadlineMs;
  for (;;) {
    const said = readFileSync(what.logFile, 'utf8');
    const ready = what.ready.exec(said);
    if (ready !== null && child.pid !== undefined) return settle(child, child.pid, ready);
    if (state.failure !== undefined) throw failure(what, state.failure, said);
    if (Date.now() > deadline) {
      if (child.pid !== undefined) await end(recordOf(child.pid), 'SIGKILL');
      throw failure(what, `no sign of readiness within ${what.deadlineMs / 1000} s`, said);
    }
    await pause(POLL_MS);
  }
}

function spawnInto(what: Launch): ChildProcess {
  const log = openSync(what.logFile, 'w');
  const leash = what.leashed === true && existsSync(SETPRIV);
  try {
    return spawn(leash ? SETPRIV : what.command, leash ? leashedArgs(what) : what.args, {
      cwd: what.cwd,
      env: { ...process.env, ...what.env },
      stdio: ['ignore', log, log],
      detached: what.leashed !== true,
    });
  } finally {
    closeSync(log);
  }
}

const leashedArgs = (what: Launch): string[] => ['--pdeathsig', 'KILL', '--', what.command, ...what.args];

/** From here on our own event loop does not wait for the child. */
function settle(child: ChildProcess, pid: number, ready: RegExpExecArray): Launched {
  child.unref();
  return { pid, ready };
}

function failure(what: Launch, reason: string, said: string): Error {
  const tail = said.slice(-LOG_TAIL_CHARS).trim().replace(/\s+/g, ' ');
  return new Error(`${what.command}: ${reason}${tail === '' ? '' : ` (${tail})`}`);
}
