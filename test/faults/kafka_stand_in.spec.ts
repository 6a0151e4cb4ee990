import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { kafkaFailure, type KafkaSendFailure } from '../../src/kafka/kafka.errors.js';
import { resolveKafkaOptions } from '../../src/kafka/kafka.options.js';
import { KafkaProducer } from '../../src/kafka/kafka.producer.js';
import { BROKERS, KafkaStandIn, type Broker, type Mood } from './bench/kafka_stand_in.js';
import { machineMs, readLedgers } from './bench/ledger.js';

const REQUEST_MS = 200;
/** Half of it for the first broker of two. */
const CONNECT_MS = 600;
const TOPIC = 'again';
const other = (broker: Broker): Broker => (broker === 0 ? 1 : 0);

describe('the stand-in for Kafka', () => {
  let folder: string;
  let kafka: KafkaStandIn;
  let producer: KafkaProducer;
  let sent = 0;

  beforeEach(async () => {
    folder = mkdtempSync(join(tmpdir(), 'sidelane-stand-in-'));
    kafka = await KafkaStandIn.open(folder);
    producer = producerOf(kafka.brokers);
  });
  afterEach(async () => {
    await producer.onApplicationShutdown();
    await kafka.close();
    rmSync(folder, { recursive: true });
  });

  function producerOf(brokers: readonly string[]): KafkaProducer {
    const times = { connect_timeout_ms: CONNECT_MS, request_timeout_ms: REQUEST_MS };
    return new KafkaProducer(resolveKafkaOptions({ brokers, ...times, target_topics: '' }, {}));
  }

  /** How the send of one record ended, as the engine is told. */
  async function send(n: string, key = 'a key'): Promise<string> {
    const value = JSON.stringify({ n, version: 1, key });
    const ended = producer.send([{ topic: TOPIC, key, value, headers: { event_id: `${++sent}` } }]);
    return ended.then(
      () => 'sent',
      (error: unknown) => kafkaFailure(error as KafkaSendFailure),
    );
  }

  /** What the ledger says of accepted records, without their times. */
  function ledger(): unknown[] {
    return readLedgers(folder).map(({ at: _, ...line }) => line);
  }

  const accepted = (n: string, run: number, key = 'a key'): unknown[] => [
    { what: 'start', pod: 'kafka', n, id: n, target: `kafka:${TOPIC}`, key, version: 1, run, attempt: 1 },
    { what: 'end', pod: 'kafka', n, run, result: 'ok' },
  ];

  /** A key whose records go to the broker; all that is sent to find it stands in the ledger. */
  async function keyOf(broker: Broker): Promise<string> {
    for (let nth = 0; ; nth++) {
      const before = kafka.acceptedBy(broker, TOPIC);
      expect(await send('asks for its broker', `key ${nth}`)).toBe('sent');
      if (kafka.acceptedBy(broker, TOPIC) > before) return `key ${nth}`;
    }
  }

  it.each<{ mood: Mood; takes: boolean; ends: string }>([
    { mood: 'well', takes: true, ends: 'sent' },
    { mood: 'late', takes: true, ends: 'unknown' },
    { mood: 'mute', takes: true, ends: 'unknown' },
    { mood: 'reset', takes: true, ends: 'unknown' },
    { mood: 'deaf', takes: false, ends: 'unknown' },
    { mood: 'hang_up', takes: false, ends: 'unknown' },
    { mood: 'stale', takes: false, ends: 'not_sent' },
  ])('that is $mood: accepts $takes, and the send ends $ends', async ({ mood, takes, ends }) => {
    kafka.mood = () => mood;
    kafka.lateMs = 2 * REQUEST_MS;
    expect(await send('a')).toBe(ends);
    expect(ledger()).toEqual(takes ? accepted('a', 1) : []);
    expect(kafka.met(mood, TOPIC)).toBe(1);
    expect(kafka.met(mood, 'once')).toBe(0);
    kafka.heal();
    expect(await send('b')).toBe('sent');
    expect(ledger()).toEqual([...(takes ? accepted('a', 1) : []), ...accepted('b', takes ? 2 : 1)]);
  });

  it('that moves its leaders refuses at the old ones, until the client asks again', async () => {
    expect(await send('a')).toBe('sent');
    kafka.moveLeaders();
    expect(await send('b')).toBe('not_sent');
    expect(await send('b')).toBe('sent');
    expect(ledger()).toEqual([...accepted('a', 1), ...accepted('b', 2)]);
  });

  it.each(BROKERS)(
    'of which broker %s is silent takes nothing there, and everything at the other one',
    async (silent) => {
      const [there, elsewhere] = [await keyOf(silent), await keyOf(other(silent))];
      const [before, connections] = [ledger().length, kafka.connections(silent)];
      kafka.become(silent, 'hole');
      await anew();
      expect(await send('a', there)).toBe('unknown'); // the client asks nothing first of a broker that another one told it of
      expect(kafka.connections(silent)).toBeGreaterThan(connections);
      expect(await send('b', elsewhere)).toBe('sent'); // its connection began with the other broker than the one before
      expect(ledger().length).toBe(before + 2);
      kafka.heal();
      expect(await send('c', there)).toBe('sent');
    },
  );

  it.each(BROKERS)(
    'of which broker %s is gone takes nothing there, and all of it where the other one takes over',
    async (gone) => {
      const [there, elsewhere] = [await keyOf(gone), await keyOf(other(gone))];
      const [before, connections] = [ledger().length, kafka.connections(gone)];
      kafka.become(gone, 'reset');
      await anew();
      expect(await send('a', there)).toBe('not_sent');
      expect(await send('b', elsewhere)).toBe('sent');
      expect(kafka.connections(gone)).toBe(connections);
      expect(ledger().length).toBe(before + 2);
      kafka.takeOver(other(gone));
      await anew();
      expect(await send('c', there)).toBe('sent');
      const taken = kafka.acceptedBy(gone, TOPIC);
      kafka.heal();
      await anew();
      expect(await send('d', there)).toBe('sent');
      expect(kafka.acceptedBy(gone, TOPIC)).toBe(taken + 1);
    },
  );

  it.each(['hole', 'reset'] as const)('of which both brokers are away (%s) takes nothing', async (network) => {
    for (const broker of BROKERS) kafka.become(broker, network);
    expect(await send('a')).toBe('not_sent');
    expect(ledger()).toEqual([]);
    kafka.heal();
    expect(await send('b')).toBe('sent');
  });

  it('that is slow is slow both ways', async () => {
    expect(await send('a')).toBe('sent');
    for (const broker of BROKERS) kafka.become(broker, 'delay', 25);
    const began = machineMs();
    expect(await send('b')).toBe('sent');
    expect(machineMs() - began).toBeGreaterThan(45);
    expect(ledger()).toEqual([...accepted('a', 1), ...accepted('b', 2)]);
  });

  it('cuts the connections of one broker, and takes new ones', async () => {
    const key = await keyOf(0);
    const before = kafka.connections(0);
    kafka.cut(0);
    await anew();
    expect(await send('a', key)).toBe('sent');
    expect(kafka.connections(0)).toBeGreaterThan(before);
  });

  /** Another producer, which connects at its first send: no connection of before is left that may not know its end yet. */
  async function anew(): Promise<void> {
    await producer.onApplicationShutdown();
    producer = producerOf(kafka.brokers);
  }
});
