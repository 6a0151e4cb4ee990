// BullMQ on Redis in memory, finished jobs dropped: the kindest settings. Its keys have a prefix of their own.
import { Queue, Worker, type ConnectionOptions } from 'bullmq';
import { randomUUID } from 'node:crypto';
import { payloadOf } from '../work.js';
import type { Peer } from './peer.types.js';

const NAME = 'noop';

export function bullmqPeer(redisUrl: string, { concurrency }: { concurrency: number }): Peer {
  const { hostname, port } = new URL(redisUrl);
  const connection: ConnectionOptions = { host: hostname, port: Number(port) };
  const prefix = `bench_${randomUUID().slice(0, 8)}`;
  const defaultJobOptions = { removeOnComplete: true, removeOnFail: true };
  let queue: Queue | undefined;
  let worker: Worker | undefined;
  return {
    name: 'BullMQ',
    open: async () => {
      await queue?.close();
      queue = new Queue('q', { connection, prefix, defaultJobOptions });
      await queue.obliterate({ force: true });
    },
    enqueue: async (i) => void (await queue!.add(NAME, { ...payloadOf(i), i })),
    enqueueMany: async (from, to) => {
      const jobs = Array.from({ length: to - from }, (_, n) => ({
        name: NAME,
        data: { ...payloadOf(from + n), i: from + n },
      }));
      await queue!.addBulk(jobs);
    },
    start: async ({ onStart, onDone }) => {
      worker = new Worker(
        'q',
        (job) => {
          onStart((job.data as { i: number }).i);
          return Promise.resolve();
        },
        { connection, prefix, concurrency },
      );
      worker.on('completed', onDone);
      worker.on('error', (error) => console.error('bullmq', error.message));
      await worker.waitUntilReady();
    },
    stop: async () => {
      await worker?.close();
      worker = undefined;
    },
    close: async () => {
      await queue?.obliterate({ force: true });
      await queue?.close();
    },
  };
}
