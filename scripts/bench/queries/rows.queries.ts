// What comes into `jobs` and what goes by its time: enqueue and retention.
import * as enqueue from '../../../src/jobs/store/enqueue.store.js';
import * as retention from '../../../src/jobs/store/retention.store.js';
import { BATCH, HOUR_MS, query, type EngineQuery } from './query.js';

export const ROW_QUERIES: readonly EngineQuery[] = [
  query({
    name: 'enqueue: keys that are known',
    of: enqueue.insertInTransaction,
    ask: (send, { jobs, fast }, session) =>
      send(
        jobs,
        fast,
        fast.map((row) => row.dedupe_key),
        session,
      ),
    index: 'dedupe_given',
    examined: 2 * BATCH,
  }),
  query({
    name: 'enqueue: one row, unless its key is known',
    of: enqueue.insertInTransaction,
    ask: (send, { jobs, fast: [row] }, session) => send(jobs, [row!], [row!.dedupe_key], session),
    index: 'dedupe_given',
    examined: 2,
  }),
  query({
    name: 'enqueue: next version of a key',
    of: enqueue.bumpCounter,
    ask: (send, { jobs }, session) => send(jobs, 'key7', session),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'retention: expired rows',
    of: retention.findExpired,
    ask: (send, { jobs, later }) => send(jobs, new Date(later.getTime() + HOUR_MS), BATCH),
    index: 'expiry',
    examined: 2 * BATCH,
  }),
  query({
    name: 'retention: their removal',
    of: retention.deleteExpired,
    // Not yet over: nothing goes.
    ask: (send, { jobs, kept, now }) =>
      send(
        jobs,
        kept.map(({ _id }) => _id),
        now,
      ),
    index: ['_id_'],
    examined: 2 * BATCH,
  }),
];
