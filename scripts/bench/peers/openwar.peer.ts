// @openwar/mongodb-queue, the fastest other queue on MongoDB that was measured: loops of get and ack, as its users write.
import mongoQueue from '@openwar/mongodb-queue';
import type { Connection } from 'mongoose';
import { setTimeout as wait } from 'node:timers/promises';
import { payloadOf } from '../work.js';
import type { Peer } from './peer.types.js';

interface Queue {
  createIndexes(): Promise<unknown>;
  add(payload: unknown): Promise<unknown>;
  get(): Promise<{ payload: { i: number }; ack: string } | undefined>;
  ack(ack: string): Promise<unknown>;
}

type MakeQueue = (db: unknown, name: string) => Queue;

export function openwarPeer(connection: Connection, { loops, poll_ms }: { loops: number; poll_ms: number }): Peer {
  const make = ((mongoQueue as unknown as { default?: MakeQueue }).default ?? mongoQueue) as MakeQueue;
  let queue: Queue;
  let running = false;
  let work: Promise<void>[] = [];
  return {
    name: '@openwar/mongodb-queue',
    open: async () => {
      await connection
        .db!.collection('openwar_jobs')
        .drop()
        .catch(() => false);
      queue = make(connection.db, 'openwar_jobs');
      await queue.createIndexes();
    },
    enqueue: async (i) => void (await queue.add({ ...payloadOf(i), i })),
    start: ({ onStart, onDone }) => {
      running = true;
      work = Array.from({ length: loops }, async () => {
        while (running) {
          const job = await queue.get();
          if (!job) {
            await wait(poll_ms);
            continue;
          }
          onStart(job.payload.i);
          await queue.ack(job.ack);
          onDone();
        }
      });
      return Promise.resolve();
    },
    stop: async () => {
      running = false;
      await Promise.all(work);
    },
  };
}
