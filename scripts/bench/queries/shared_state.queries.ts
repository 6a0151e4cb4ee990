// What pods share besides rows: partitions and pods, pauses, rate limits, the facts of the database.
import { mongo } from 'mongoose';
import * as audit from '../../../src/jobs/store/audit.store.js';
import * as boot from '../../../src/jobs/store/boot.store.js';
import * as state from '../../../src/jobs/store/engine_state.store.js';
import * as lease from '../../../src/jobs/store/partition_lease.store.js';
import * as rate from '../../../src/jobs/store/rate_limit.store.js';
import * as pause from '../../../src/jobs/store/target_pause.store.js';
import { BATCH, FAST, HOUR_MS, query, SMALL, type EngineQuery, type Loaded } from './query.js';

const PER_PARTITION = 'a row per partition, 4,096 at most';
const PER_POD = 'a row per pod; those of dead pods go after a day';
const PER_TARGET = 'a row per target that is or was paused';
/** Those of one pod: a hundredth of all. */
const OWNED = Array.from({ length: SMALL / 100 }, (_, i) => 100 * i + 7);
const mine = ({ now }: Loaded): lease.Mine => ({ owner: 'pod7', partitions: OWNED, now });

const term = { partition: 7, owner: 'pod7', lease_token: 'term7' };
/** Under another term: matches nothing, and is asked for its reason. */
const mark = (partition: number, at: Date): lease.MarkRequest => ({
  term: { ...term, partition, lease_token: 'another' },
  rev: 0,
  mark: { target: FAST, mode: 'at_least_once', token: 'mark', ids: [], at },
  replaces: ['last'],
});
const wish = ({ now }: Loaded, target: string) => ({ target, actor: 'ada', reason: 'rest', now });
const finding = ({ now, later }: Loaded): pause.Finding => ({
  token: 'new',
  reason: 'down',
  cause: 'row',
  now,
  probe_at: later,
});

const BOOT: readonly EngineQuery[] = [
  query({
    name: 'boot: the number of partitions',
    of: boot.agreeOnPartitions,
    ask: (send, { jobs }) => send(jobs, SMALL),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'boot: rows of all partitions',
    of: boot.seedPartitions,
    ask: (send, { jobs }) => send(jobs, SMALL + 1),
    index: 'partition',
    examined: SMALL + 1,
    whole: PER_PARTITION,
  }),
];

const LEASES: readonly EngineQuery[] = [
  query({
    name: 'leases: renewal',
    of: lease.renewLeases,
    ask: (send, loaded) => send(loaded.jobs, mine(loaded), loaded.later),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: what this pod owns',
    of: lease.readOwned,
    ask: (send, loaded) => send(loaded.jobs, mine(loaded)),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: what nobody owns, where a share is short',
    of: lease.readFree,
    ask: (send, { jobs, now }) => send(jobs, now),
    index: [],
    examined: SMALL + 1,
    whole: PER_PARTITION,
  }),
  query({
    name: 'leases: a take, and what it won',
    of: lease.takePartitions,
    ask: (send, { jobs, now, later }) =>
      send(jobs, { partitions: [1, 2, 3], owner: 'pod7', lease_token: 'new', now, until: later }),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: what a lost answer won',
    of: lease.readTerm,
    ask: (send, { jobs }) => send(jobs, { partitions: OWNED, owner: 'pod7', lease_token: 'term7' }),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: release',
    of: lease.releasePartition,
    ask: (send, { jobs }) => send(jobs, { ...term, lease_token: 'another' }, []),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: mark of a batch, and why it matched nothing',
    of: lease.markInflight,
    ask: (send, { jobs, now }) => send(jobs, [mark(7, now)], now),
    index: 'partition',
    examined: 2,
  }),
  query({
    name: 'leases: marks of several cells',
    of: lease.markInflight,
    ask: (send, { jobs, now }) =>
      send(
        jobs,
        OWNED.map((partition) => mark(partition, now)),
        now,
      ),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: judged marks',
    of: lease.pullMarks,
    ask: (send, { jobs }) => send(jobs, term, ['mark']),
    index: 'partition',
    examined: 2 * OWNED.length,
  }),
  query({
    name: 'leases: heartbeat',
    of: lease.beatHeart,
    ask: (send, { jobs, now }) =>
      send(
        jobs,
        { pod_id: 'pod8', started_at: now, host: 'host', version: '1', lanes: ['fast'], targets: [FAST] },
        now,
      ),
    index: 'pod_id',
    examined: 1,
  }),
  query({
    name: 'leases: live pods',
    of: lease.livePods,
    ask: (send, { jobs, now }) => send(jobs, 'fast', now),
    index: [],
    examined: SMALL,
    whole: PER_POD,
  }),
  query({
    name: 'leases: a pod that leaves, and those long dead',
    of: lease.removeWorker,
    ask: (send, { jobs }) => send(jobs, 'gone', new Date(0)),
    index: 'pod_id',
    examined: SMALL,
    whole: PER_POD,
  }),
  query({
    name: 'admin: partitions',
    of: state.listPartitions,
    ask: (send, { jobs }) => send(jobs),
    index: 'partition',
    examined: SMALL + 1,
    whole: PER_PARTITION,
  }),
  query({
    name: 'admin: pods',
    of: state.listWorkers,
    ask: (send, { jobs }) => send(jobs, BATCH),
    index: [],
    examined: SMALL,
    whole: PER_POD,
  }),
];

const PAUSES: readonly EngineQuery[] = [
  query({
    name: 'pauses: all, once per heartbeat',
    of: pause.listTargets,
    ask: (send, { jobs }) => send(jobs),
    index: '_id_',
    examined: SMALL + 1,
    whole: PER_TARGET,
  }),
  query({
    name: 'pauses: one',
    of: pause.readTarget,
    ask: (send, { jobs }) => send(jobs, 'explain:7'),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: by an admin',
    of: pause.pauseByAdmin,
    ask: (send, loaded, session) => send(session, loaded.jobs, wish(loaded, 'explain:7')),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: resumed by an admin',
    of: pause.resumeByAdmin,
    ask: (send, loaded, session) => send(session, loaded.jobs, wish(loaded, 'explain:7')),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: by the engine',
    of: pause.pauseByEngine,
    ask: (send, loaded) => send(loaded.jobs, 'explain:7', finding(loaded)),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: still down',
    of: pause.extendPause,
    ask: (send, loaded) => send(loaded.jobs, 'explain:7', 'began', finding(loaded)),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: up again',
    of: pause.openAfterProbe,
    ask: (send, { jobs, now }) => send(jobs, 'explain:7', 'began', { reason: 'up', now }),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: permit for a probe',
    of: pause.takeProbe,
    ask: (send, { jobs, now, later }) => send(jobs, 'explain:7', { pod: 'pod', now, until: later }),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'pauses: permit given back',
    of: pause.giveBackProbe,
    ask: (send, { jobs, later }) => send(jobs, 'explain:7', { token: 'began', pod: 'pod', until: later }),
    index: '_id_',
    examined: 1,
  }),
];

export const SHARED_QUERIES: readonly EngineQuery[] = [
  ...BOOT,
  ...LEASES,
  ...PAUSES,
  query({
    name: 'rate limits: slots of a key',
    of: rate.takeRateSlots,
    ask: (send, { jobs, now }) =>
      send(jobs, { target: FAST, key: '7', window: { limit: 9, window_ms: HOUR_MS }, now, want: 1 }),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'audit: newest first',
    of: audit.listAudit,
    ask: (send, { jobs }) => send(jobs, { limit: BATCH }),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'audit: before a row',
    of: audit.listAudit,
    ask: (send, { jobs }) => send(jobs, { before: new mongo.ObjectId(), limit: BATCH }),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'audit: one more slice of a bulk action',
    of: audit.addToAudit,
    ask: (send, { jobs, now }, session) =>
      send(session, jobs, {
        _id: new mongo.ObjectId(),
        at: now,
        actor: 'ada',
        action: 'jobs.retry',
        subject: '{}',
        count: 1,
      }),
    index: '_id_',
    examined: 1,
  }),
];
