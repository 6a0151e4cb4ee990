// Agenda with the settings that drained fastest here: a lock limit, a short poll, finished jobs removed.
import { Agenda } from 'agenda';
import { MongoBackend } from '@agendajs/mongo-backend';
import type { Connection } from 'mongoose';
import { payloadOf } from '../work.js';
import type { Peer } from './peer.types.js';

const NAME = 'noop';

export interface AgendaSettings {
  concurrency: number;
  poll_ms: number;
}

export function agendaPeer(connection: Connection, { concurrency, poll_ms }: AgendaSettings): Peer {
  const open = (options: object = {}): Agenda =>
    new Agenda({
      // The driver behind Mongoose and the peer's own differ in their types alone.
      backend: new MongoBackend({ mongo: connection.db as never, collection: 'agenda_jobs' }),
      ...options,
    });
  let queue: Agenda;
  let worker: Agenda | undefined;
  return {
    name: 'Agenda',
    open: async () => {
      await connection
        .db!.collection('agenda_jobs')
        .drop()
        .catch(() => false);
      queue = open();
      await queue.ready;
    },
    enqueue: async (i) => void (await queue.now(NAME, { ...payloadOf(i), i })),
    start: async ({ onStart, onDone }) => {
      worker = open({
        processEvery: poll_ms,
        maxConcurrency: concurrency,
        defaultConcurrency: concurrency,
        lockLimit: concurrency,
        defaultLockLimit: concurrency,
        removeOnComplete: true,
      });
      await worker.ready;
      worker.define(NAME, (job: { attrs: { data: unknown } }) => onStart((job.attrs.data as { i: number }).i), {
        concurrency,
        lockLimit: concurrency,
      });
      worker.on('complete', () => onDone());
      worker.on('error', (error: Error) => console.error('agenda', error.message));
      await worker.start();
    },
    stop: async () => {
      await worker?.stop();
      worker = undefined;
    },
  };
}
