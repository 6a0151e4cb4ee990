// Finds the Java and Maven that run Apache Kafka, or installs them where we may.
import { execFileSync } from 'node:child_process';
import { ensure, mayInstall, onPath } from '../debian.packages.js';
import type { Log } from '../services.types.js';
import { haveJars } from './kafka_jars.maven.js';

const OLDEST_JAVA = 17;

/** The major version, 0 when it does not say one. */
function javaVersion(java: string): number {
  try {
    const said = execFileSync(java, ['--version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return Number(/ (\d+)/.exec(said)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

const tooOld = (java: string): boolean => javaVersion(java) < OLDEST_JAVA;

export async function javaUnavailable(): Promise<string | undefined> {
  const java = onPath('java');
  if (java !== undefined && tooOld(java)) return `Java is older than ${OLDEST_JAVA}`;
  if (mayInstall()) return undefined;
  if (java === undefined) return `no Java ${OLDEST_JAVA} on the PATH`;
  return haveJars() || onPath('mvn') !== undefined ? undefined : 'no Maven on the PATH';
}

export async function ensureJava(log: Log): Promise<string> {
  const java = await ensure('java', ['default-jre-headless'], log);
  if (tooOld(java)) throw new Error(`the Java of this system is older than ${OLDEST_JAVA}`);
  return java;
}

export const ensureMaven = (log: Log): Promise<string> => ensure('mvn', ['maven'], log);
