/**
 * Which partition a record goes to, and the question to the client which ones there are. The client's own view is the one
 * that counts: it skips a partition that it does not know without a word. So it is asked through its partitioner, by a
 * send that ends there, before anything is written. Never sends and keeps nothing: the client caches its metadata.
 */
import { Partitioners, type ICustomPartitioner, type PartitionMetadata } from 'kafkajs';
import type { KafkaRecord } from './kafka.message.js';

/** Stands in for a message. The send of it always fails; it is answered when `partitions` is set. */
export class PartitionsQuestion {
  readonly value = '';
  partitions: readonly PartitionMetadata[] | undefined;
}

/** The pinned partitioner: another one would reorder every key that has rows on both sides of the change. */
export const createPartitioner: ICustomPartitioner = () => {
  const pinned = Partitioners.DefaultPartitioner();
  return (args) => {
    if (!(args.message instanceof PartitionsQuestion)) return pinned(args);
    args.message.partitions = args.partitionMetadata;
    throw new Error('asked for the partitions only');
  };
};

export type Place = (record: KafkaRecord) => number;

/** Where the records of a topic go. Those without a key are spread by their event, over the partitions that have a leader. */
export function placeIn(topic: string, partitions: readonly PartitionMetadata[]): Place {
  const pinned = Partitioners.DefaultPartitioner();
  const led = partitions.filter(({ leader }) => leader >= 0);
  const open = led.length > 0 ? led : partitions;
  const slot = (among: readonly PartitionMetadata[], key: string): number =>
    pinned({ topic, partitionMetadata: [...among], message: { key, value: '' } });
  return ({ key, headers }) =>
    key === null ? open[slot(open, headers['event_id'] ?? '')]!.partitionId : slot(partitions, key);
}
