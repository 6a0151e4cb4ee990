import { describe, expect, it } from '@jest/globals';
import { BootError } from '../../src/common/errors.js';
import { DeliveryMode } from '../../src/jobs/jobs.types.js';
import { resolveKafkaOptions } from '../../src/kafka/kafka.options.js';

const faultsOf = (...args: Parameters<typeof resolveKafkaOptions>): string => {
  try {
    resolveKafkaOptions(...args);
  } catch (error) {
    expect(error).toBeInstanceOf(BootError);
    return (error as BootError).message;
  }
  return '';
};

describe('Kafka options', () => {
  it('take brokers and further targets from the environment', () => {
    const config = resolveKafkaOptions(
      {},
      { KAFKA_BROKERS: 'a:1, b:2', KAFKA_TARGET_TOPICS: 'orders, audit:at_least_once,' },
    );
    expect(config.brokers).toEqual(['a:1', 'b:2']);
    expect(config.targets).toEqual([
      { topic: 'orders', delivery_mode: DeliveryMode.atMostOnce },
      { topic: 'audit', delivery_mode: DeliveryMode.atLeastOnce },
    ]);
  });

  it('wait 3 s for a connect and 10 s for an answer when nothing is given', () => {
    expect(resolveKafkaOptions({}, {})).toMatchObject({
      enabled: true,
      brokers: [],
      targets: [],
      connect_timeout_ms: 3_000,
      request_timeout_ms: 10_000,
    });
  });

  it('let the environment switch a declared topic to at least once', () => {
    const config = resolveKafkaOptions(
      { topics: [{ event: 'order_changed', default_topic: 'orders' }] },
      { KAFKA_TARGET_TOPICS: 'orders:at_least_once' },
    );
    expect(config.targets).toEqual([{ topic: 'orders', delivery_mode: DeliveryMode.atLeastOnce }]);
  });

  it('keep the declared mode of a topic that the environment names without one', () => {
    const config = resolveKafkaOptions(
      { topics: [{ event: 'e', default_topic: 'orders', delivery_mode: DeliveryMode.atLeastOnce }] },
      { KAFKA_TARGET_TOPICS: 'orders' },
    );
    expect(config.targets).toEqual([{ topic: 'orders', delivery_mode: DeliveryMode.atLeastOnce }]);
  });

  it('make one target of two events with one topic', () => {
    const topics = ['a', 'b'].map((event) => ({ event, default_topic: 'orders' }));
    expect(resolveKafkaOptions({ topics }, {}).targets).toHaveLength(1);
  });

  it.each([
    ['orders:exactly_once', /expected topic or topic:at_least_once, got "orders:exactly_once"/],
    ['orders:at_least_once:x', /expected topic or topic:at_least_once/],
    ['orders,orders:at_least_once', /orders stands there twice/],
    ['my topic', /letters, digits.*got "my topic"/],
    ['..', /got "\.\."/],
  ])('refuse KAFKA_TARGET_TOPICS=%s and say why', (text, message) => {
    expect(faultsOf({}, { KAFKA_TARGET_TOPICS: text })).toMatch(message);
  });

  it('keep the rows in flight of a topic, also when the environment switches it to at least once', () => {
    const topics = [{ event: 'e', default_topic: 'orders', max_in_flight: 20 }];
    expect(resolveKafkaOptions({ topics }, {}).targets).toEqual([
      { topic: 'orders', delivery_mode: DeliveryMode.atMostOnce, max_in_flight: 20 },
    ]);
    expect(resolveKafkaOptions({ topics }, { KAFKA_TARGET_TOPICS: 'orders:at_least_once' }).targets).toEqual([
      { topic: 'orders', delivery_mode: DeliveryMode.atLeastOnce, max_in_flight: 20 },
    ]);
  });

  it.each([0, -1, 1.5, NaN, '20' as unknown as number])('refuse max_in_flight %s and name it', (max_in_flight) => {
    const topics = [{ event: 'e', default_topic: 'orders', max_in_flight }];
    expect(faultsOf({ topics }, {})).toBe(
      `kafka.topics[e].max_in_flight: expected a whole number from 1, got ${max_in_flight}`,
    );
  });

  it('refuse two events of one topic with different max_in_flight', () => {
    const topics = [
      { event: 'a', default_topic: 'orders', max_in_flight: 20 },
      { event: 'b', default_topic: 'orders' },
    ];
    expect(faultsOf({ topics }, {})).toMatch(
      /topics\[b\]\.max_in_flight: orders is declared with another max_in_flight/,
    );
  });

  it('refuse what cannot work, all of it at once', () => {
    const faults = faultsOf(
      {
        brokers: ['nowhere'],
        connect_timeout_ms: 0,
        topics: [
          { event: 'a', default_topic: 'orders' },
          { event: 'a', default_topic: 'orders', delivery_mode: DeliveryMode.atLeastOnce },
        ],
      },
      {},
    );
    expect(faults).toMatch(/kafka.brokers: expected host:port, got "nowhere"/);
    expect(faults).toMatch(/kafka.connect_timeout_ms/);
    expect(faults).toMatch(/every event once/);
    expect(faults).toMatch(/another delivery_mode/);
  });
});
