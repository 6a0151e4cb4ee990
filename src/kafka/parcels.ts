/** Records that one call of the client sends together, in the client's shapes. Pure. */
import type { RecordMetadata } from 'kafkajs';
import { KafkaNotCovered, type KafkaSendFailure } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';

/** Records of one topic-partition; without a partition the client places them. */
export interface KafkaParcel {
  readonly records: readonly KafkaRecord[];
  readonly partition?: number;
}

/** What was to be sent together, and how it ended: `failure` speaks for exactly these records. */
export interface KafkaSent extends KafkaParcel {
  readonly failure?: KafkaSendFailure;
}

export function groupBy<K>(records: readonly KafkaRecord[], of: (record: KafkaRecord) => K): Map<K, KafkaRecord[]> {
  const groups = new Map<K, KafkaRecord[]>();
  for (const record of records) {
    const group = of(record);
    const known = groups.get(group);
    if (known) known.push(record);
    else groups.set(group, [record]);
  }
  return groups;
}

export function topicMessages(records: readonly KafkaRecord[], partition: number | undefined) {
  const to = partition === undefined ? {} : { partition };
  return [...groupBy(records, ({ topic }) => topic)].map(([topic, list]) => ({
    topic,
    messages: list.map(({ key, value, headers }) => ({ key, value, headers: { ...headers }, ...to })),
  }));
}

/** A send that resolves has been seen to leave a partition out. */
export function assertCovers(answer: readonly RecordMetadata[] | undefined, records: readonly KafkaRecord[]): void {
  const answered = new Set((answer ?? []).filter(({ errorCode }) => errorCode === 0).map(({ topicName }) => topicName));
  const missing = records.find(({ topic }) => !answered.has(topic));
  if (missing) throw new KafkaNotCovered(`topic ${missing.topic}`);
}
