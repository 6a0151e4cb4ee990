// The shared Kafka of the development services: an Apache Kafka broker, else kcat's mock broker. A new start begins
// with an empty broker: development data is not worth a recovery after a crash.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { ensure, lacking } from '../debian.packages.js';
import type { Provider } from '../services.types.js';
import { javaUnavailable } from './java.runtime.js';
import { placeFor, prepareKafka, runBroker } from './kafka.broker.js';
import { runMockBroker } from './kafka_mock.broker.js';

const DEFAULT_PORT = 9092;

export const apacheKafka: Provider = {
  name: 'Apache Kafka',
  unavailable: javaUnavailable,
  async start({ folder, log }) {
    const java = await prepareKafka(log);
    const home = join(folder, 'kafka');
    rmSync(home, { recursive: true, force: true });
    const { brokers, pid } = await runBroker(await placeFor(home, DEFAULT_PORT), java, false);
    return { address: brokers, pids: [pid] };
  },
};

export const kafkaMock: Provider = {
  name: "kcat's mock broker",
  unavailable: async () => lacking('kcat'),
  async start({ folder, log }) {
    const command = await ensure('kcat', ['kcat'], log);
    const { brokers, pid } = await runMockBroker(command, join(folder, 'kafka_mock.log'), false);
    return { address: brokers, pids: [pid] };
  },
};
