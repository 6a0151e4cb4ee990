/** Twenty at-most-once rows in flight, from the database through the lane to brokers that can be told what to do. */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { KafkaModule } from '../../src/kafka/kafka.module.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { PartitionBrokers } from './partition_brokers.js';

const T = 'kafka:orders';
const KEYS = ['DO-1', 'DO-2', 'DO-3', 'DO-4', 'DO-5'];

describe('twenty at-most-once rows in flight', () => {
  const db = new TestDatabase();
  let kafka: PartitionBrokers;
  let pod: TestPod;

  beforeEach(async () => {
    kafka = await PartitionBrokers.open(2);
    const topics = [{ event: 'order_changed', default_topic: 'orders', max_in_flight: 20 }];
    const { brokers } = kafka;
    const timeouts = { connect_timeout_ms: 1_000, request_timeout_ms: 1_000 };
    const imports = [KafkaModule.forRoot({ brokers, topics, target_topics: '', ...timeouts })];
    pod = await db.pod({ partitions: 1 }, [], new FakeClock(), { imports });
    await pod.leases.heartbeat();
  });

  afterEach(async () => {
    await db.reset();
    await kafka.close();
  });

  afterAll(() => db.drop());

  /** Row `n` goes to key `n % 5`. */
  async function enqueue(count: number): Promise<void> {
    for (let n = 0; n < count; n++) {
      const order = { key: KEYS[n % KEYS.length]!, version: n };
      await pod.sideEffect.enqueue(T, { n, ...order }, { code: 'order_changed', dedupe_key: String(n), ...order });
    }
  }

  interface Sent {
    n: number;
    key: string;
  }
  const accepted = (partition: number): Sent[] => (kafka.accepted.get(partition) ?? []) as Sent[];
  const all = (): Sent[] => [...accepted(0), ...accepted(1)];
  const numbers = (sent: readonly Sent[]): number[] => sent.map(({ n }) => n).sort((a, b) => a - b);
  const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n);
  const left = () => pod.collections.jobs.find().sort({ version: 1 }).toArray();

  function expectOrder(): void {
    for (const key of KEYS) {
      const own = all().filter((record) => record.key === key);
      expect(own.map(({ n }) => n)).toEqual(numbers(own));
    }
  }

  it('are sent by partition: few calls, every key in order', async () => {
    await enqueue(40);
    await pod.drain();
    expect(await left()).toEqual([]);
    expect(numbers(all())).toEqual(upTo(40));
    expectOrder();
    expect(kafka.requests.length).toBeLessThanOrEqual(6);
    expect(kafka.requests.every((partitions) => partitions.length === 1)).toBe(true);
  });

  it('charge the one that the broker refuses, alone: the others arrive once, in order', async () => {
    kafka.refuses = (value) => (value as Sent).n === 7;
    await enqueue(20);
    await pod.drain();
    const behind = [12, 17]; // of its key: they wait for it
    expect(await left()).toMatchObject([
      { version: 7, attempts: 1, status: 'PENDING' },
      ...behind.map((version) => ({ version, attempts: 0, status: 'PENDING' })),
    ]);
    expect(numbers(all())).toEqual(upTo(20).filter((n) => n !== 7 && !behind.includes(n)));
    expectOrder();
  });

  it('end DEAD where the end is unknown, and only there', async () => {
    await enqueue(20);
    kafka.moods.set(1, 'mute');
    await pod.drain();
    kafka.moods.clear();
    const rows = await left();
    const dead = rows.filter(({ status }) => status === 'DEAD').map(({ version }) => version);
    expect(dead).toEqual(numbers(accepted(1)));
    expect(dead.length).toBeGreaterThan(0);
    expect(rows.length).toBe(dead.length);
    expect(numbers(all())).toEqual(upTo(20));
  });

  it('wait at no charge where nothing was sent, and only there', async () => {
    await enqueue(20);
    kafka.moods.set(1, 6);
    await pod.drain();
    const rows = await left();
    expect(rows.every(({ status, attempts }) => status === 'PENDING' && attempts === 0)).toBe(true);
    expect([...numbers(accepted(0)), ...rows.map(({ version }) => version)].sort((a, b) => a - b)).toEqual(upTo(20));
    expect(accepted(0).length * rows.length).toBeGreaterThan(0);
    expect(accepted(1)).toEqual([]);
  });
});
