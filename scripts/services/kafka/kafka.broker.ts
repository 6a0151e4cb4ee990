// Runs one Apache Kafka node (KRaft) on loopback. It returns only when the broker has said that it serves.
import { join } from 'node:path';
import { freePort, LOOPBACK } from '../loopback.port.js';
import { launch } from '../process.launch.js';
import type { Log } from '../services.types.js';
import { ensureJava, ensureMaven } from './java.runtime.js';
import { classpath, fetchJars, haveJars } from './kafka_jars.maven.js';
import { layOut, propertiesFile } from './kafka_storage.files.js';
import type { BrokerPlace } from './kafka_storage.files.js';

const START_MS = 60_000;

// A small heap and the quick compiler: a broker that is up in seconds matters more here than its throughput.
const JVM = ['-Xms64m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-XX:-UsePerfData'];
const LOGGER = 'org.slf4j.simpleLogger';
const LOGGING = [`-D${LOGGER}.defaultLogLevel=warn`, `-D${LOGGER}.log.kafka.server.KafkaRaftServer=info`];

export interface RunningBroker extends BrokerPlace {
  brokers: string;
  pid: number;
}

export async function prepareKafka(log: Log): Promise<string> {
  const java = await ensureJava(log);
  if (!haveJars()) await fetchJars(await ensureMaven(log), log);
  return java;
}

export async function placeFor(folder: string, preferredPort = 0): Promise<BrokerPlace> {
  return { folder, port: await freePort(preferredPort), controllerPort: await freePort() };
}

/** Starts the broker on the data that its folder holds, or on a new formatted one. */
export async function runBroker(place: BrokerPlace, java: string, leashed: boolean): Promise<RunningBroker> {
  await layOut(place, java);
  const { pid } = await launch({
    command: java,
    args: [...JVM, ...LOGGING, '-cp', classpath(), 'kafka.Kafka', propertiesFile(place.folder)],
    logFile: join(place.folder, 'kafka.log'),
    ready: /Kafka Server started/,
    deadlineMs: START_MS,
    leashed,
  });
  return { ...place, brokers: `${LOOPBACK}:${place.port}`, pid };
}
