/** Who works and who owns what, for people. Reads only; both collections are small by their nature. */
import type { JobsCollections } from './collections.js';
import type { PartitionDoc, WorkerDoc } from './jobs.schema.js';

export async function listPartitions({ partitions }: JobsCollections): Promise<PartitionDoc[]> {
  return partitions.find({}, { projection: { _id: 0 }, sort: { partition: 1 } }).toArray();
}

/** Latest heartbeat first. Pods that ended in order have no row. */
export async function listWorkers({ workers }: JobsCollections, limit: number): Promise<WorkerDoc[]> {
  return workers.find({}, { projection: { _id: 0 }, sort: { heartbeat_at: -1 }, limit }).toArray();
}
