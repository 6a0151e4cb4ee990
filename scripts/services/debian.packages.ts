// Installs Debian packages when we may: root on a machine with apt. One installation at a time, since apt has one lock.
import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { Log } from './services.types.js';

const run = promisify(execFile);
const APT = ['-qq', '-o', 'DPkg::Lock::Timeout=300'];
let last: Promise<unknown> = Promise.resolve();

export function onPath(program: string, path = process.env.PATH ?? ''): string | undefined {
  return path
    .split(delimiter)
    .filter((folder) => folder !== '')
    .map((folder) => join(folder, program))
    .find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

export const mayInstall = (): boolean => process.getuid?.() === 0 && onPath('apt-get') !== undefined;

/** Work that may call apt itself waits here for other such work. */
export function oneAtATime<T>(work: () => Promise<T>): Promise<T> {
  const result = last.then(work);
  last = result.catch(() => undefined);
  return result;
}

export function install(packages: string[], log: Log): Promise<void> {
  return oneAtATime(async () => {
    log(`installing ${packages.join(', ')} with apt-get`);
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    await run('apt-get', [...APT, 'update'], { env });
    await run('apt-get', [...APT, 'install', '-y', '--no-install-recommends', ...packages], { env });
  });
}

/** Why the program cannot be had here, when it is not on the PATH and nobody may install it. */
export function lacking(program: string, debianPackage = program): string | undefined {
  if (onPath(program) !== undefined || mayInstall()) return undefined;
  return `no ${program} on the PATH (Debian package ${debianPackage})`;
}

export async function ensure(program: string, debianPackages: string[], log: Log): Promise<string> {
  if (onPath(program) === undefined) await install(debianPackages, log);
  const found = onPath(program);
  if (found === undefined) throw new Error(`${program} is not on the PATH after its installation`);
  return found;
}
