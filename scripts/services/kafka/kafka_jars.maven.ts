// Fetches Apache Kafka's published jars with Maven, once per user, and gives the classpath. Asks the network only when
// the cache holds no complete set.
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from '../state.store.js';
import type { Log } from '../services.types.js';

const run = promisify(execFile);
const MAVEN_MS = 300_000;

// The newest broker of the 3.9 line or above that Java 17 runs; the SLF4J binding has to match Kafka's SLF4J 1.7.
const POM = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sidelane</groupId><artifactId>development-kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>[3.9,5)</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
`;

const jarFolder = (): string => join(cacheFolder(), 'kafka', 'jars');

export const haveJars = (): boolean => existsSync(jarFolder());

export const classpath = (): string => join(jarFolder(), '*');

/** `kafka_2.13-4.1.0.jar` says `4.1.0`. */
export function brokerVersion(): string {
  const jar = readdirSync(jarFolder()).find((name) => /^kafka_2\.13-[\d.]+\.jar$/.test(name));
  return jar?.slice('kafka_2.13-'.length, -'.jar'.length) ?? 'of unknown version';
}

export async function fetchJars(maven: string, log: Log): Promise<void> {
  if (haveJars()) return;
  log("fetching Apache Kafka's jars with Maven (once)");
  const parent = join(cacheFolder(), 'kafka');
  mkdirSync(parent, { recursive: true });
  const draft = mkdtempSync(join(parent, 'draft-'));
  try {
    writeFileSync(join(draft, 'pom.xml'), POM);
    const jars = join(draft, 'jars');
    await run(maven, ['-B', '-q', 'dependency:copy-dependencies', `-DoutputDirectory=${jars}`], {
      cwd: draft,
      timeout: MAVEN_MS,
    });
    // The folder appears whole or not at all; if another start was faster, its set is as good.
    if (!haveJars()) renameSync(jars, jarFolder());
  } catch (error) {
    if (!haveJars()) throw new Error(`Maven could not fetch Apache Kafka: ${firstErrorLine(error)}`, { cause: error });
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
}

function firstErrorLine(error: unknown): string {
  const { stdout = '', message = String(error) } = error as { stdout?: string; message?: string };
  return /\[ERROR\] (.*)/.exec(stdout)?.[1] ?? message.split('\n')[0] ?? '';
}
