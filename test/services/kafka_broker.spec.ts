import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Kafka, logLevel, Partitioners } from 'kafkajs';
import type { Producer } from 'kafkajs';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { startKafka, startKafkaMock } from '../../scripts/services/kafka/kafka.handle.js';
import type { KafkaHandle } from '../../scripts/services/kafka/kafka.types.js';
import { answers, portOf } from '../../scripts/services/loopback.port.js';
import { birthOf } from '../../scripts/services/process.birth.js';

const client = (brokers: string, requestTimeout = 5_000): Kafka =>
  new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING, requestTimeout, enforceRequestTimeout: true });

function producer(kafka: Kafka): Producer {
  const createPartitioner = Partitioners.DefaultPartitioner;
  return kafka.producer({ allowAutoTopicCreation: false, createPartitioner, retry: { retries: 0 } });
}

async function consume(kafka: Kafka, topic: string, count: number): Promise<string[]> {
  const consumer = kafka.consumer({ groupId: `reader-${randomUUID()}` });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values: string[] = [];
  await new Promise<void>((resolve, reject) => {
    const eachMessage = async ({ message }: { message: { value: Buffer | null } }): Promise<void> => {
      values.push(String(message.value));
      if (values.length === count) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return values;
}

async function createTopic(kafka: Kafka, topic: string): Promise<void> {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 1 }], waitForLeaders: true });
  await admin.disconnect();
}

describe('an Apache Kafka broker of our own', () => {
  let broker: KafkaHandle;
  let writer: Producer;

  beforeAll(async () => {
    broker = await startKafka();
    const kafka = client(broker.brokers, 1_000);
    await createTopic(kafka, 'orders');
    writer = producer(kafka);
    await writer.connect();
  });

  afterAll(async () => {
    await writer.disconnect();
    await broker.remove();
  });

  const send = (value: string, topic = 'orders') => writer.send({ topic, messages: [{ key: 'a', value }] });

  it('delivers what was sent, in order', async () => {
    await send('1');
    await send('2');
    expect(await consume(client(broker.brokers), 'orders', 2)).toEqual(['1', '2']);
  });

  it('refuses a topic that nobody created', async () => {
    await expect(send('1', 'misspelt')).rejects.toThrow(/does not host this topic-partition/);
  });

  it('refuses a message over its limit', async () => {
    await expect(send('x'.repeat(2_000_000))).rejects.toThrow(/larger than the max message size/);
  });

  it('does not answer while frozen and goes on when thawed', async () => {
    broker.freeze();
    await expect(send('unclear')).rejects.toThrow(/timed out/);
    broker.thaw();
    await send('3');
    // The frozen broker had received the message that timed out, and took it when it ran again.
    expect(await consume(client(broker.brokers), 'orders', 4)).toEqual(['1', '2', 'unclear', '3']);
  });

  it('cannot be reached when stopped, and serves its data on the same port after a restart', async () => {
    const before = broker.brokers;
    await broker.stop();
    expect(await answers(portOf(before))).toBe(false);
    await broker.restart();
    expect(broker.brokers).toBe(before);
    const values = await consume(client(broker.brokers), 'orders', 4);
    expect(values).toEqual(['1', '2', 'unclear', '3']);
  });

  it('listens on loopback only', () => {
    const listening = ['tcp', 'tcp6'].flatMap((name) => listeners(broker.pid, name));
    expect(listening.length).toBeGreaterThan(0);
    // 127.0.0.1 as the kernel prints it, plain and mapped into IPv6.
    for (const address of listening) expect(address).toMatch(/^(0000000000000000FFFF0000)?0100007F$/);
  });

  it('leaves nothing behind when removed', async () => {
    const other = await startKafka();
    const { pid } = other;
    await other.remove();
    expect(birthOf(pid)).toBeUndefined();
    expect(await answers(portOf(other.brokers))).toBe(false);
  });
});

/** Addresses in state LISTEN of the two ports that the process was given. */
function listeners(pid: number, family: string): string[] {
  const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').filter(Boolean);
  const properties = readFileSync(command.at(-1) ?? '', 'utf8');
  const ports = new Set([...properties.matchAll(/127\.0\.0\.1:(\d+)/g)].map(([, port]) => Number(port)));
  return readFileSync(`/proc/${pid}/net/${family}`, 'utf8')
    .split('\n')
    .slice(1)
    .map((line) => line.trim().split(/\s+/))
    .filter(([, , , state]) => state === '0A')
    .map(([, local = '']) => local.split(':'))
    .filter(([, port = '']) => ports.has(Number.parseInt(port, 16)))
    .map(([address = '']) => address);
}

describe("kcat's mock broker", () => {
  let broker: KafkaHandle;

  beforeAll(async () => {
    broker = await startKafkaMock();
  });

  afterAll(() => broker.remove());

  it('delivers what was sent, in order', async () => {
    const kafka = client(broker.brokers);
    const writer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 3 } });
    await writer.connect();
    await writer.send({ topic: 'orders', messages: ['1', '2'].map((value) => ({ key: 'a', value })) });
    await writer.disconnect();
    expect(await consume(kafka, 'orders', 2)).toEqual(['1', '2']);
  });

  it('says that it cannot be restarted', async () => {
    await expect(broker.restart()).rejects.toThrow(/cannot be restarted/);
  });
});
