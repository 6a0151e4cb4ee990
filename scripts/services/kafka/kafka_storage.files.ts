// The files that an Apache Kafka broker starts from: its properties and a formatted data folder. Formatting takes a
// second of Java, so it is done once per broker version and copied; nothing in it depends on the ports.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LOOPBACK } from '../loopback.port.js';
import { cacheFolder } from '../state.store.js';
import { brokerVersion, classpath } from './kafka_jars.maven.js';

const run = promisify(execFile);

export interface BrokerPlace {
  folder: string;
  port: number;
  controllerPort: number;
}

export const propertiesFile = (folder: string): string => join(folder, 'server.properties');
const dataFolder = (folder: string): string => join(folder, 'data');

/** One node that is broker and controller; its internal topics have one replica because there is one node. */
export function writeProperties({ folder, port, controllerPort }: BrokerPlace): void {
  const properties = {
    'process.roles': 'broker,controller',
    'node.id': 1,
    'controller.quorum.voters': `1@${LOOPBACK}:${controllerPort}`,
    listeners: `PLAINTEXT://${LOOPBACK}:${port},CONTROLLER://${LOOPBACK}:${controllerPort}`,
    'advertised.listeners': `PLAINTEXT://${LOOPBACK}:${port}`,
    'listener.security.protocol.map': 'PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT',
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'PLAINTEXT',
    'log.dirs': dataFolder(folder),
    'num.partitions': 4,
    // A misspelt topic has to be an error here as it is in production.
    'auto.create.topics.enable': false,
    'offsets.topic.replication.factor': 1,
    'offsets.topic.num.partitions': 1,
    'transaction.state.log.replication.factor': 1,
    'transaction.state.log.min.isr': 1,
    'transaction.state.log.num.partitions': 1,
    'group.initial.rebalance.delay.ms': 0,
    'log.cleaner.dedupe.buffer.size': 2_097_152,
  };
  const lines = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
  writeFileSync(propertiesFile(folder), `${lines.join('\n')}\n`);
}

export async function layOut(place: BrokerPlace, java: string): Promise<void> {
  const { folder } = place;
  mkdirSync(folder, { recursive: true });
  writeProperties(place);
  if (existsSync(join(dataFolder(folder), 'meta.properties'))) return;
  cpSync(await formatted(java), dataFolder(folder), { recursive: true });
}

async function formatted(java: string): Promise<string> {
  const ready = join(cacheFolder(), 'kafka', `formatted-${brokerVersion()}`);
  if (existsSync(ready)) return ready;
  const draft = mkdtempSync(join(cacheFolder(), 'kafka', 'draft-'));
  try {
    writeProperties({ folder: draft, port: 1, controllerPort: 2 });
    const clusterId = randomBytes(16).toString('base64url');
    const tool = ['-cp', classpath(), 'kafka.tools.StorageTool', 'format'];
    await run(java, [...tool, '-t', clusterId, '-c', propertiesFile(draft)]);
    if (!existsSync(ready)) renameSync(dataFolder(draft), ready);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return ready;
}
