// Brokers of one's own for tests and the demo: stopped, frozen and restarted without disturbing the shared one. They
// end with the process that started them.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensure, lacking } from '../debian.packages.js';
import { end, recordOf, signal } from '../process.birth.js';
import type { Log, ProcessRecord } from '../services.types.js';
import { javaUnavailable } from './java.runtime.js';
import { placeFor, prepareKafka, runBroker } from './kafka.broker.js';
import { runMockBroker } from './kafka_mock.broker.js';
import type { KafkaHandle } from './kafka.types.js';

const silent: Log = () => undefined;

const newFolder = (): string => mkdtempSync(join(tmpdir(), 'sidelane-kafka-'));

export async function startKafka(log: Log = silent): Promise<KafkaHandle> {
  const missing = await javaUnavailable();
  if (missing !== undefined) throw new Error(`Apache Kafka cannot run here: ${missing}`);
  const java = await prepareKafka(log);
  const folder = newFolder();
  const place = await placeFor(folder);
  const run = async (): Promise<ProcessRecord> => recordOf((await runBroker(place, java, true)).pid);
  return handle('Apache Kafka', `127.0.0.1:${place.port}`, folder, await run(), run);
}

export async function startKafkaMock(log: Log = silent): Promise<KafkaHandle> {
  const missing = lacking('kcat');
  if (missing !== undefined) throw new Error(`kcat's mock broker cannot run here: ${missing}`);
  const command = await ensure('kcat', ['kcat'], log);
  const folder = newFolder();
  mkdirSync(folder, { recursive: true });
  const { brokers, pid } = await runMockBroker(command, join(folder, 'kafka_mock.log'), true);
  return handle('kcat mock', brokers, folder, recordOf(pid), async () => {
    throw new Error("kcat's mock broker chooses its port and keeps nothing: it cannot be restarted");
  });
}

function handle(
  kind: KafkaHandle['kind'],
  brokers: string,
  folder: string,
  first: ProcessRecord,
  run: () => Promise<ProcessRecord>,
): KafkaHandle {
  let current = first;
  return {
    kind,
    brokers,
    get pid() {
      return current.pid;
    },
    stop: () => end(current),
    async restart() {
      await end(current);
      current = await run();
    },
    freeze: () => void signal(current, 'SIGSTOP'),
    thaw: () => void signal(current, 'SIGCONT'),
    async remove() {
      await end(current, 'SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
