// A database that has more of everything than a query may look at: backlogs, waiting heads with followers, claims, DEAD,
// DONE and expired rows, rows of other targets; and as many pods, partitions, pauses and schedules as anybody has.
import { mongo } from 'mongoose';
import { JOBS_DEFAULTS } from '../../../src/jobs/jobs.options.js';
import { ensureIndexes } from '../../../src/jobs/store/boot.store.js';
import { openCollections, type JobsCollections } from '../../../src/jobs/store/collections.js';
import type { ScheduleDoc } from '../../../src/schedules/schedules.schema.js';
import { openSchedules, type SchedulesCollections } from '../../../src/schedules/schedules.store.js';
import type { Connection } from 'mongoose';
import { load, storedRow } from '../stored_rows.js';
import { BATCH, BUSY, CLAIMS, DAILY, FAST, HOUR_MS, KEYS, LIGHT, LONG, PARTITIONS, PAUSED, SMALL } from './query.js';
import type { Loaded } from './query.js';

interface Times {
  readonly past: Date;
  readonly later: Date;
}

/** Makes the collections with their indexes and loads `rows` rows of each kind. */
export async function loadForPlans(connection: Connection, rows: number): Promise<Loaded> {
  const jobs = await openCollections(connection, JOBS_DEFAULTS);
  await ensureIndexes(jobs);
  const schedules = await openSchedules(connection, JOBS_DEFAULTS);
  const times = { past: new Date(Date.now() - HOUR_MS), later: new Date(Date.now() + HOUR_MS) };
  await loadFastLane(jobs, rows, times);
  await loadLongLane(jobs, rows, times);
  await loadFinished(jobs, rows, times);
  await loadOthers(jobs, times);
  await loadSchedules(schedules, times);
  return {
    connection,
    jobs,
    schedules,
    ...times,
    ...(await inHand(jobs)),
    schedule: (await schedules.schedules.findOne())!,
  };
}

const spread = (i: number) => ({ partition: i % PARTITIONS, order_key: `k${i % KEYS}`, version: i });

async function loadFastLane(jobs: JobsCollections, rows: number, { past, later }: Times): Promise<void> {
  const due = { run_at: past, next_run_at: past };
  await load(jobs, rows, (i) => storedRow(FAST, i, { ...due, ...spread(i) }));
  // Followers wait behind their heads: deferred, so that they are not due.
  await load(jobs, rows, (i) => storedRow(LIGHT, i, { run_at: past, next_run_at: later, ...spread(i) }));
  await load(jobs, 20, (i) => storedRow(LIGHT, i, { ...due, ...spread(i), order_key: `ready${i}` }));
  await load(jobs, rows, (i) => storedRow(PAUSED, i, { ...due, ...spread(i) }));
  // One name more than the long lane has.
  await load(jobs, 1, (i) => storedRow('explain:single', i, { ...due, ...spread(i) }));
}

async function loadLongLane(jobs: JobsCollections, rows: number, { past, later }: Times): Promise<void> {
  const due = { run_at: past, next_run_at: past };
  await load(jobs, rows, (i) => storedRow(LONG, i, { ...due, lane: 'long', code: `c${i % KEYS}` }));
  // One exclusive code before all others, and a few of these.
  await load(jobs, rows, (i) => storedRow(BUSY, i, { ...due, lane: 'long', code: 'busy', priority: 3 }));
  await load(jobs, 20, (i) => storedRow(BUSY, i, { ...due, lane: 'long', code: `c${i}` }));
  await load(jobs, 2, (i) => storedRow(DAILY, i, { ...due, lane: 'long', payload: { slot: past.toISOString() } }));
  await load(jobs, CLAIMS, (i) =>
    storedRow(LONG, i, {
      lane: 'long',
      status: 'RUNNING',
      claim_token: 'claim',
      claimed_by: 'pod',
      lease_until: i < CLAIMS / 2 ? past : later,
      ...(i < 5 && { running_code: `exclusive${i}` }),
    }),
  );
}

async function loadFinished(jobs: JobsCollections, rows: number, { past, later }: Times): Promise<void> {
  const dead = { status: 'DEAD', closed_at: past } as const;
  await load(jobs, rows, (i) => storedRow(FAST, i, { ...spread(i), ...dead }));
  await load(jobs, rows, (i) => storedRow(LONG, i, { ...dead, lane: 'long', expire_at: later }));
  // Not before an hour is over: the server's own TTL monitor must not take away what is about to be looked for.
  await load(jobs, rows, (i) =>
    storedRow(FAST, i, { ...spread(i), status: 'DONE', closed_at: past, expire_at: later }),
  );
}

async function loadOthers(jobs: JobsCollections, { past, later }: Times): Promise<void> {
  const many = <T>(make: (i: number) => T): T[] => Array.from({ length: SMALL }, (_, i) => make(i));
  await jobs.partitions.insertMany(
    many((i) => ({
      _id: new mongo.ObjectId(),
      partition: i,
      owner: i % 100 === 0 ? null : `pod${i % 100}`,
      lease_token: `term${i}`,
      lease_until: i % 100 === 0 ? null : later,
      inflight: [],
      rev: 0,
    })),
  );
  await jobs.workers.insertMany(
    many((i) => ({
      _id: new mongo.ObjectId(),
      pod_id: `pod${i}`,
      heartbeat_at: i % 2 ? past : later,
      started_at: past,
      host: 'host',
      version: '1',
      lanes: ['fast' as const],
      targets: [FAST],
    })),
  );
  await jobs.targets.insertMany(
    many((i) => ({
      _id: `explain:${i}`,
      state: 'paused' as const,
      since: past,
      reason: 'down',
      by: 'engine' as const,
    })),
  );
  await jobs.rateLimits.insertMany(many((i) => ({ _id: `${FAST} ${i}`, slots: [], expire_at: later })));
  await jobs.counters.insertMany(many((i) => ({ _id: `key${i}`, seq: i })));
  await jobs.audit.insertMany(
    many((i) => ({
      _id: new mongo.ObjectId(),
      at: past,
      actor: 'ada',
      action: 'job.retry',
      subject: `${i}`,
      count: 1,
    })),
  );
}

async function loadSchedules({ schedules }: SchedulesCollections, { past, later }: Times): Promise<void> {
  await schedules.insertMany(
    Array.from({ length: SMALL }, (_, i): ScheduleDoc => ({
      _id: new mongo.ObjectId(),
      code: `s${i}`,
      cron: '0 * * * *',
      timezone: 'UTC',
      missed_slot_policy: 'run_once',
      retry_count: 1,
      enabled: i % 2 === 0,
      next_run_at: i < 20 ? past : later,
      created_at: past,
      updated_at: past,
    })),
  );
}

async function inHand({
  jobs,
}: JobsCollections): Promise<Pick<Loaded, 'now' | 'fast' | 'running' | 'due' | 'dead' | 'kept'>> {
  const ids = async (target: string, status: 'PENDING' | 'DEAD') => {
    const rows = await jobs.find({ target, status }, { limit: BATCH, projection: { _id: 1 } }).toArray();
    return rows.map(({ _id }) => _id);
  };
  return {
    now: new Date(),
    fast: await jobs.find({ target: FAST, status: 'PENDING', partition: 0 }, { limit: BATCH }).toArray(),
    running: await jobs.find({ status: 'RUNNING', claim_token: 'claim' }).toArray(),
    due: await ids(LONG, 'PENDING'),
    dead: await ids(FAST, 'DEAD'),
    kept: await jobs.find({ status: 'DONE' }, { limit: BATCH }).toArray(),
  };
}
