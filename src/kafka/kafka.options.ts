/**
 * The Kafka target's options: one resolve-and-validate. Code injects the resolved `KafkaConfig`. Every wait of the
 * client is here, and together they stay below the fast lane's `timeout_ms`. Never talks to a broker.
 */
import { BootError } from '../common/errors.js';
import { DeliveryMode } from '../jobs/jobs.types.js';

export interface KafkaTopicOptions {
  /** Code of the jobs that carry this event. */
  event: string;
  /** The target is `kafka:<default_topic>`, wherever the event is sent. */
  default_topic: string;
  /** Topic that jobs of this event go to instead; a settings record goes before it. */
  topic_name?: string;
  /** Default `at_most_once`. `KAFKA_TARGET_TOPICS` can switch it to `at_least_once`. */
  delivery_mode?: DeliveryMode;
  /**
   * Rows that one mark may put in flight: what a takeover can leave unknown. Default 1 at most once, else the batch. At
   * most once with more than 1: one call per topic-partition, side by side.
   */
  max_in_flight?: number;
}

/** What an administrator may change while the application runs. Read before every send: keep it cheap. */
export interface KafkaSettings {
  enabled?: boolean;
  /** Event to topic. */
  topic_names?: Readonly<Record<string, string>>;
}

export interface KafkaModuleOptions {
  /** Default: the environment's `KAFKA_BROKERS`, separated by commas. */
  brokers?: readonly string[];
  client_id?: string;
  /** Default true. Disabled, jobs wait as paused. */
  enabled?: boolean;
  connect_timeout_ms?: number;
  request_timeout_ms?: number;
  topics?: readonly KafkaTopicOptions[];
  /** Default: the environment's `KAFKA_TARGET_TOPICS`: `topic[:at_least_once]`, separated by commas. */
  target_topics?: string;
  settings?(): KafkaSettings | Promise<KafkaSettings>;
}

export interface KafkaTopic {
  readonly topic: string;
  readonly delivery_mode: DeliveryMode;
  readonly max_in_flight?: number;
}

export interface KafkaConfig {
  readonly brokers: readonly string[];
  readonly client_id: string;
  readonly enabled: boolean;
  readonly connect_timeout_ms: number;
  readonly request_timeout_ms: number;
  /** One target each. */
  readonly targets: readonly KafkaTopic[];
  /** Event to the topic its jobs go to, where that is not the target's own. */
  readonly topic_names: Readonly<Record<string, string>>;
  readonly events: ReadonlySet<string>;
  readonly settings?: () => KafkaSettings | Promise<KafkaSettings>;
}

export const KAFKA_CONFIG = Symbol('sidelane.kafka.config');

type Env = Readonly<Record<string, string | undefined>>;

/** Throws `BootError('invalid_options')` that lists every fault. */
export function resolveKafkaOptions(raw: KafkaModuleOptions = {}, env: Env = process.env): KafkaConfig {
  const errors: string[] = [];
  const topics = raw.topics ?? [];
  const config: KafkaConfig = {
    brokers: raw.brokers ?? listOf(env['KAFKA_BROKERS']),
    client_id: raw.client_id ?? 'sidelane',
    enabled: raw.enabled ?? true,
    connect_timeout_ms: raw.connect_timeout_ms ?? 3_000,
    request_timeout_ms: raw.request_timeout_ms ?? 10_000,
    targets: targetsOf(topics, parseTargetTopics(raw.target_topics ?? env['KAFKA_TARGET_TOPICS'], errors), errors),
    topic_names: Object.fromEntries(
      topics.flatMap((topic) => (topic.topic_name ? [[topic.event, topic.topic_name]] : [])),
    ),
    events: new Set(topics.map((topic) => topic.event)),
    ...(raw.settings && { settings: () => raw.settings!() }),
  };
  for (const field of ['connect_timeout_ms', 'request_timeout_ms'] as const) {
    const ms = config[field];
    if (!Number.isSafeInteger(ms) || ms < 10) errors.push(`kafka.${field}: expected a whole number from 10, got ${ms}`);
  }
  if (config.events.size < topics.length) errors.push('kafka.topics: expected every event once');
  for (const broker of config.brokers) {
    if (!/^\S+:\d+$/.test(broker)) errors.push(`kafka.brokers: expected host:port, got ${JSON.stringify(broker)}`);
  }
  if (errors.length > 0) throw new BootError('invalid_options', errors.join('\n'), errors[0]?.split(':')[0]);
  return config;
}

/** `topic[:at_least_once]`, separated by commas; faults go to `errors`. */
export function parseTargetTopics(text: string | undefined, errors: string[]): KafkaTopic[] {
  const found = new Map<string, KafkaTopic>();
  for (const entry of listOf(text)) {
    const [topic = '', mode, ...rest] = entry.split(':');
    if (rest.length > 0 || (mode !== undefined && mode !== DeliveryMode.atLeastOnce)) {
      errors.push(`KAFKA_TARGET_TOPICS: expected topic or topic:at_least_once, got ${JSON.stringify(entry)}`);
    } else if (found.has(topic)) errors.push(`KAFKA_TARGET_TOPICS: ${topic} stands there twice`);
    else {
      const fault = topicFault(topic);
      if (fault) errors.push(`KAFKA_TARGET_TOPICS: ${fault}`);
      found.set(topic, { topic, delivery_mode: mode ?? DeliveryMode.atMostOnce });
    }
  }
  return [...found.values()];
}

function targetsOf(declared: readonly KafkaTopicOptions[], fromEnv: KafkaTopic[], errors: string[]): KafkaTopic[] {
  const targets = new Map<string, KafkaTopic>();
  for (const options of declared) {
    const { event, default_topic: topic, topic_name, delivery_mode = DeliveryMode.atMostOnce, max_in_flight } = options;
    for (const name of [topic, topic_name ?? topic]) {
      const fault = topicFault(name);
      if (fault) errors.push(`kafka.topics[${event}]: ${fault}`);
    }
    if (max_in_flight !== undefined && (!Number.isSafeInteger(max_in_flight) || max_in_flight < 1)) {
      errors.push(`kafka.topics[${event}].max_in_flight: expected a whole number from 1, got ${max_in_flight}`);
    }
    const target = { topic, delivery_mode, ...(max_in_flight !== undefined && { max_in_flight }) };
    const known = targets.get(topic);
    // One target has one rule; two events that ask for different ones would get whichever came last.
    for (const field of ['delivery_mode', 'max_in_flight'] as const) {
      if (!known || known[field] === target[field]) continue;
      errors.push(`kafka.topics[${event}].${field}: ${topic} is declared with another ${field} already`);
    }
    targets.set(topic, target);
  }
  for (const { topic, delivery_mode } of fromEnv) {
    // Without a suffix the environment only makes the topic known: it must not weaken what the code declared.
    const known = targets.get(topic);
    if (!known || delivery_mode === DeliveryMode.atLeastOnce) targets.set(topic, { ...known, topic, delivery_mode });
  }
  return [...targets.values()];
}

function topicFault(topic: string): string | undefined {
  if (/^[A-Za-z0-9._-]{1,194}$/.test(topic) && topic !== '.' && topic !== '..') return undefined;
  return `expected a topic of 1 to 194 letters, digits, ".", "_" or "-", got ${JSON.stringify(topic)}`;
}

function listOf(text = ''): string[] {
  return text
    .split(',')
    .map((entry) => entry.trim())
    .filter(Boolean);
}
