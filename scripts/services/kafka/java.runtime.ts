// Finds the Java and Maven that run Apache Kafka, or installs them where we may.
import { execFileSync } from 'node:child_process';
import { ensure, mayInstall, onPath } from '../debian.packages.js';
import type { Log } from '../services.types.js';
import { haveJars } from './kafka_jars.maven.js';

const OLDEST_JAVA = 17;

function javaVersion(java: string): number {
  try {
    // `-XshowSettings` prints to stderr; `--version` (Java 9 and later) prints to stdout.
    const said = execFileSync(java, ['--version'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    return Number(/(\d+)/.exec(said.slice(said.indexOf(' ')))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

export async function javaUnavailable(): Promise<string | undefined> {
  const java = onPath('java');
  if (java !== undefined && javaVersion(java) < OLDEST_JAVA) return `Java is older than ${OLDEST_JAVA}`;
  if (mayInstall()) return undefined;
  if (java === undefined) return `no Java ${OLDEST_JAVA}`;
  return haveJars() || onPath('mvn') !== undefined ? undefined : 'no Maven';
}

export const ensureJava = (log: Log): Promise<string> => ensure('java', ['default-jre-headless'], log);

export const ensureMaven = (log: Log): Promise<string> => ensure('mvn', ['maven'], log);
