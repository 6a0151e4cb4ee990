// What admins, health checks and metrics ask of `jobs`, and what admins change.
import * as admin from '../../../src/jobs/store/admin.store.js';
import * as bulk from '../../../src/jobs/store/admin_bulk.store.js';
import * as change from '../../../src/jobs/store/admin_change.store.js';
import { countByTarget } from '../../../src/jobs/store/admin_counts.store.js';
import { readKeysBehind } from '../../../src/jobs/store/admin_keys.store.js';
import * as health from '../../../src/jobs/store/health.store.js';
import { BATCH, FAST, LIGHT, LONG, MOST, PARTITIONS, PAUSED, query, SMALL, type EngineQuery } from './query.js';

const page = { skip: 0, limit: BATCH, look: MOST };
const LISTS: readonly [name: string, filter: admin.JobFilter, index: string][] = [
  ['of everything', {}, '_id_'],
  ['of a status', { status: 'PENDING' }, 'admin'],
  ['of DEAD rows', { status: 'DEAD' }, 'admin'],
  ['of DEAD rows of a target', { status: 'DEAD', target: FAST }, 'dead'],
  ['of a target', { target: LONG }, '_id_'],
  ['of waiting rows of a target', { status: 'PENDING', target: FAST }, 'admin'],
  ['of waiting rows of a target that has none', { status: 'PENDING', target: 'explain:none' }, 'admin'],
  ['of waiting rows of a code', { status: 'PENDING', code: 'none' }, 'admin'],
  ['of a code', { code: 'c7' }, '_id_'],
  ['of a code that nobody has', { code: 'none' }, '_id_'],
  ['of a key', { key: 'k7' }, '_id_'],
  ['of a key that nobody has', { key: 'none' }, '_id_'],
  ['of DEAD rows of a key', { status: 'DEAD', key: 'none' }, 'admin'],
  ['of DEAD rows of a key and target', { status: 'DEAD', target: FAST, key: 'none' }, 'dead'],
];

const BULK: readonly [name: string, filter: bulk.DeadFilter, index: string][] = [
  ['of a target', { target: FAST }, 'dead'],
  ['of a code that none has', { code: 'none' }, 'admin'],
  ['of a key that none has', { key: 'none' }, 'admin'],
  ['of a target since a time', { target: FAST, from: new Date('2100-01-01') }, 'dead'],
  ['of a target and a time without any', { target: FAST, from: new Date(0), to: new Date(1) }, 'dead'],
];

export const ADMIN_QUERIES: readonly EngineQuery[] = [
  ...LISTS.map(([name, filter, index]) =>
    query({
      name: `admin: list ${name}`,
      of: admin.listJobs,
      ask: (send, { jobs }) => send(jobs, filter, page),
      index,
      examined: MOST,
    }),
  ),
  ...LISTS.map(([name, filter, index]) =>
    query({
      name: `admin: count ${name}`,
      of: admin.countJobs,
      ask: (send, { jobs }) => send(jobs, filter, MOST),
      index,
      examined: MOST + 1,
    }),
  ),
  query({
    name: 'admin: a row in full',
    of: admin.findDetail,
    ask: (send, { jobs, dead }) => send(jobs, dead[0]!),
    index: '_id_',
    examined: 1,
  }),
  ...[FAST, LONG, 'explain:none'].map((target) =>
    query({
      name: `admin: does any row name ${target}?`,
      of: admin.isTargetUsed,
      ask: (send, { jobs }) => send(jobs, target),
      index: ['due_fast', 'in_order', 'due_long', 'dead'],
      examined: 2,
    }),
  ),
  ...BULK.map(([name, filter, index]) =>
    query({
      name: `bulk: slice ${name}`,
      of: bulk.readSlice,
      ask: (send, { jobs }) => send(jobs, filter, { limit: BATCH, look: MOST }),
      index,
      examined: MOST,
    }),
  ),
  query({
    name: 'bulk: slice of ids',
    of: bulk.readSlice,
    ask: (send, { jobs, dead }) => send(jobs, { ids: dead }, { limit: BATCH, look: MOST }),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  ...BULK.map(([name, filter, index]) =>
    query({
      name: `bulk: count ${name}`,
      of: bulk.countDead,
      ask: (send, { jobs }) => send(jobs, filter, { look: MOST }),
      index,
      examined: MOST,
    }),
  ),
  query({
    name: 'bulk: count of ids',
    of: bulk.countDead,
    ask: (send, { jobs, dead }) => send(jobs, { ids: dead }, { look: MOST }),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'bulk: revision of partitions',
    of: bulk.bumpRevisions,
    ask: (send, { jobs }, session) => send(session, jobs, [1, 2, 3]),
    index: 'partition',
    examined: 2 * 3,
  }),
  query({
    name: 'bulk: retry of a slice',
    of: bulk.reviveSlice,
    ask: (send, { jobs, dead, now }, session) => send(session, jobs, dead, now),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'bulk: skip of a slice',
    of: bulk.removeSlice,
    ask: (send, { jobs, dead }, session) => send(session, jobs, dead),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'admin: where a row stands',
    of: change.lookAt,
    ask: (send, { jobs, dead }) => send(jobs, dead[0]!),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'admin: a row in a transaction',
    of: change.readRow,
    ask: (send, { jobs, dead }, session) => send(session, jobs, dead[0]!),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'admin: retry',
    of: change.reviveDead,
    ask: (send, { jobs, dead, now }, session) => send(session, jobs, dead[0]!, now),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'admin: skip',
    of: change.removeIn,
    ask: (send, { jobs, dead }, session) => send(session, jobs, dead[0]!, 'DEAD'),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'admin: cancel of a running row',
    of: change.requestCancel,
    ask: (send, { jobs, running: [row], now }, session) =>
      send(session, jobs, row!._id, { at: now, by: 'ada', reason: 'no' }),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'admin: revision of a partition',
    of: change.bumpRevision,
    ask: (send, { jobs }, session) => send(session, jobs, 7),
    index: 'partition',
    examined: 1,
  }),
  query({
    name: 'admin: is it the head of its key?',
    of: change.isHead,
    ask: (send, { jobs, fast: [row] }, session) => send(session, jobs, row!, row!._id),
    index: 'in_order',
    examined: 2,
  }),
  query({
    name: 'admin: release of a key',
    of: change.releaseKey,
    ask: (send, { jobs, fast: [row], now }, session) => send(session, jobs, row!, now),
    index: 'in_order',
    // The key's own rows.
    examined: 2 * BATCH,
  }),
  query({
    name: 'admin: counts by status and target',
    of: countByTarget,
    ask: (send, { jobs }) => send(jobs, [{ name: FAST, lane: 'fast' }, { name: LONG }], MOST),
    index: ['admin', 'in_order', 'due_long', 'dead'],
    examined: 2 * MOST,
  }),
  query({
    name: 'admin: keys in order',
    of: readKeysBehind,
    ask: (send, { jobs }) => send(jobs, { limit: BATCH }),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
  query({
    name: 'admin: keys behind a place, to the end',
    of: readKeysBehind,
    ask: (send, { jobs }) =>
      send(jobs, {
        after: { target: PAUSED, partition: PARTITIONS - 1, order_key: 'k99' },
        only: PAUSED,
        limit: BATCH,
      }),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
];

const everyPartition = Array.from({ length: PARTITIONS }, (_, partition) => partition);

export const HEALTH_QUERIES: readonly EngineQuery[] = [
  query({
    name: 'health: names on rows',
    of: health.namesOnRows,
    ask: (send, { jobs, now }) => send(jobs, { most: 20, abandonedBefore: now }),
    index: ['in_order', 'due_long', 'leases'],
    // A seek for each lane, and a hundred expired leases.
    examined: 2 * (BATCH + 2),
  }),
  query({
    name: 'health: partitions without an owner',
    of: health.unownedPartitions,
    ask: (send, { jobs, now }) => send(jobs, now),
    index: [],
    examined: SMALL + 1,
    whole: 'a row per partition, 4,096 at most',
  }),
  query({
    name: 'health: partitions with due rows',
    of: health.partitionsWithDueRows,
    ask: (send, { jobs, now }) => send(jobs, { targets: [FAST, LIGHT], partitions: everyPartition, now, limit: MOST }),
    index: 'due_fast',
    examined: 2 * MOST,
  }),
  query({
    name: 'health: targets that live pods know',
    of: health.knownTargets,
    ask: (send, { jobs, now }) => send(jobs, now),
    index: [],
    examined: SMALL,
    whole: 'a row per pod; those of dead pods go after a day',
  }),
  query({
    name: 'metrics: rows of each status',
    of: health.countStates,
    ask: (send, { jobs }) => send(jobs, ['PENDING', 'RUNNING', 'DEAD', 'DONE'], MOST),
    index: 'admin',
    examined: 2 * 4 * MOST,
  }),
  query({
    name: 'metrics: oldest due row, fast lane',
    of: health.oldestDueFast,
    ask: (send, { jobs, now }) => send(jobs, { target: FAST, partitions: everyPartition, now }),
    index: 'due_fast',
    examined: 2,
  }),
  query({
    name: 'metrics: oldest due row, long lane',
    of: health.oldestDueLong,
    ask: (send, { jobs, now }) => send(jobs, LONG, now),
    index: 'due_long',
    // A seek for each priority.
    examined: 2 * 3,
  }),
];
