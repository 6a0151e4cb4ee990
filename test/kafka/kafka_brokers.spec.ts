/** Which broker is asked first, and what is left of a connection that was given up. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { KafkaConnection } from '../../src/kafka/kafka.connection.js';
import { kafkaFailure, type KafkaSendFailure } from '../../src/kafka/kafka.errors.js';
import type { KafkaRecord } from '../../src/kafka/kafka.message.js';
import { resolveKafkaOptions, type KafkaConfig } from '../../src/kafka/kafka.options.js';
import { KafkaProducer } from '../../src/kafka/kafka.producer.js';
import { PartitionBrokers } from './partition_brokers.js';

const record = (id: string, topic = 'orders', key: string | null = 'DO-1'): KafkaRecord => ({
  topic,
  key,
  value: JSON.stringify(id),
  headers: { event_id: id },
});

/** Takes connections and says nothing, as a broker that is frozen. */
class Silent {
  private readonly sockets = new Set<Socket>();
  accepted = 0;
  private readonly server: Server = createServer((socket) => {
    this.accepted++;
    this.sockets.add(socket);
    socket.on('error', () => undefined);
  });

  async open(): Promise<this> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    return this;
  }

  get address(): string {
    return `127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

describe('a list of brokers', () => {
  let kafka: PartitionBrokers;
  let silent: Silent;
  let producer: KafkaProducer | undefined;

  beforeEach(async () => {
    kafka = await PartitionBrokers.open(2);
    silent = await new Silent().open();
  });

  afterEach(async () => {
    await producer?.onApplicationShutdown();
    await silent.close();
    await kafka.close();
  });

  const config = (brokers: readonly string[], connect_timeout_ms = 1_000): KafkaConfig =>
    resolveKafkaOptions({ brokers, connect_timeout_ms, request_timeout_ms: 5_000, target_topics: '' }, {});
  const failureOf = async (sent: Promise<unknown>): Promise<string> =>
    sent.then(
      () => 'sent',
      (error: unknown) => kafkaFailure(error as KafkaSendFailure),
    );

  it('whose first one is silent is not waited for: the next is asked within the same send', async () => {
    producer = new KafkaProducer(config([silent.address, ...kafka.brokers]));
    expect(await failureOf(producer.send([record('a')]))).toBe('sent');
    expect(silent.accepted).toBe(1);
  });

  it('begins with another one at each new connection', async () => {
    producer = new KafkaProducer(config([silent.address, kafka.brokers[0]!]));
    kafka.moods.set(0, 6).set(1, 6);
    for (const id of ['a', 'b', 'c']) expect(await failureOf(producer.send([record(id)]))).toBe('not_sent');
    expect(silent.accepted).toBe(2); // the first and the third connection
  });

  it('of which one refuses a record while another waits is said to refuse, and the connection is kept', async () => {
    producer = new KafkaProducer(config(kafka.brokers));
    expect(await failureOf(producer.send(['a', 'b'].map((id) => record(id, 'orders', null))))).toBe('sent');
    const before = kafka.connections;
    kafka.moods.set(0, 'mute').set(1, 'mute');
    kafka.refuses = (value) => value === 'large';
    // Without a key records go round the partitions: the first one waits, and another broker refuses the second one.
    const records = ['small', 'large'].map((id) => record(id, 'orders', null));
    expect(await failureOf(producer.send(records))).toBe('answered');
    kafka.moods.clear();
    expect(await failureOf(producer.send([record('c')]))).toBe('sent');
    expect(kafka.connections).toBe(before);
  });

  it('is not connected to any more by a connection that was closed, whatever comes late', async () => {
    const connection = new KafkaConnection(config([kafka.brokers[0]!]));
    await connection.close();
    expect(await failureOf(connection.send({ records: [record('a')] }))).toBe('not_sent');
    expect((await connection.parcels([record('b')]))[0]!.failure).toBeDefined();
    expect(kafka.connections).toBe(0);
  });
});
