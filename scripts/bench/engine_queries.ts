// The queries of the engine's loops on `jobs`, each called through its store function, on a collection that has more of
// everything than it may look at: backlogs, waiting heads with followers, claims, DEAD rows, rows of other targets.
import type { Types } from 'mongoose';
import type { JobsCollections } from '../../src/jobs/store/collections.js';
import * as fast from '../../src/jobs/store/fast_lane.store.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import * as long from '../../src/jobs/store/long_lane.store.js';
import { deleteFinished, writeOutcomes } from '../../src/jobs/store/outcome.store.js';
import { stampOperations } from '../../src/jobs/store/outcome_update.js';
import { load, storedRow } from './stored_rows.js';

const FAST = 'explain:fast';
const LIGHT = 'explain:light';
const LONG = 'explain:long';
const OTHER = 'explain:paused';
const PARTITIONS = 4;
const KEYS = 200;
const HOUR_MS = 3_600_000;
const BATCH = 100;
const CLAIMS = 50;

export interface Loaded {
  /** Rows per kind. */
  rows: number;
  /** What one round of each lane holds in its hands. */
  fast: JobDoc[];
  running: JobDoc[];
  due: Types.ObjectId[];
  now: Date;
}

export interface EngineQuery {
  name: string;
  /** Index that must serve it; more than one where the server may choose. */
  index: readonly string[];
  /** Most rows it may examine, on any number of stored rows. */
  examined: number;
  run(collections: JobsCollections, loaded: Loaded): Promise<unknown>;
}

/** Loads `rows` rows of each kind. */
export async function loadForPlans(collections: JobsCollections, rows: number): Promise<Loaded> {
  const past = new Date(Date.now() - HOUR_MS);
  const later = new Date(Date.now() + HOUR_MS);
  const due = { run_at: past, next_run_at: past };
  const spread = (i: number) => ({ partition: i % PARTITIONS, order_key: `k${i % KEYS}`, version: i });
  await load(collections, rows, (i) => storedRow(FAST, i, { ...due, ...spread(i) }));
  // Followers wait behind their heads: deferred, so that they are not due.
  await load(collections, rows, (i) => storedRow(LIGHT, i, { run_at: past, next_run_at: later, ...spread(i) }));
  await load(collections, 20, (i) => storedRow(LIGHT, i, { ...due, ...spread(i), order_key: `ready${i}` }));
  await load(collections, rows, (i) => storedRow(OTHER, i, { ...due, ...spread(i) }));
  await load(collections, rows, (i) => storedRow(FAST, i, { ...spread(i), status: 'DEAD' }));
  await load(collections, rows, (i) => storedRow(LONG, i, { ...due, lane: 'long', code: `c${i % KEYS}` }));
  await load(collections, CLAIMS, (i) =>
    storedRow(LONG, i, {
      lane: 'long',
      status: 'RUNNING',
      claim_token: 'claim',
      claimed_by: 'pod',
      lease_until: i < CLAIMS / 2 ? past : later,
      ...(i < 5 && { running_code: `exclusive${i}` }),
    }),
  );
  const { jobs } = collections;
  return {
    rows,
    now: new Date(),
    fast: await jobs.find({ target: FAST, status: 'PENDING', partition: 0 }, { limit: BATCH }).toArray(),
    running: await jobs.find({ status: 'RUNNING', claim_token: 'claim' }).toArray(),
    due: (await jobs.find({ target: LONG, status: 'PENDING' }, { limit: BATCH, projection: { _id: 1 } }).toArray()).map(
      ({ _id }) => _id,
    ),
  };
}

const cell = (target: string) => ({ target, partition: 0 });
const everyPartition = Array.from({ length: PARTITIONS }, (_, partition) => partition);

/** Reads stop at their limit; writes touch the rows they name. Twice of that is the bound, as everywhere. */
export const ENGINE_QUERIES: readonly EngineQuery[] = [
  {
    name: 'fast lane: cold check over all cells',
    index: ['due_fast'],
    examined: 2 * 256,
    run: (c, { now }) => fast.findCellsWithWork(c, { targets: [FAST, LIGHT], partitions: everyPartition }, now, 256),
  },
  {
    name: 'fast lane: probe of a backlog',
    index: ['due_fast'],
    examined: 2 * BATCH,
    run: (c, { now }) => fast.probeDueKeys(c, cell(FAST), now, BATCH),
  },
  {
    name: 'fast lane: probe among waiting rows',
    index: ['due_fast'],
    examined: 2 * BATCH,
    run: (c, { now }) => fast.probeDueKeys(c, cell(LIGHT), now, BATCH),
  },
  {
    name: 'fast lane: ordered read, first page of a walk',
    index: ['in_order'],
    examined: 2 * BATCH,
    run: (c) => fast.readOrdered(c, cell(FAST), { after: '' }, BATCH),
  },
  {
    name: 'fast lane: ordered read, in the middle of a walk',
    index: ['in_order'],
    examined: 2 * BATCH,
    run: (c) => fast.readOrdered(c, cell(FAST), { after: 'k140' }, BATCH),
  },
  {
    name: 'fast lane: ordered read of named keys',
    index: ['in_order'],
    examined: 2 * BATCH,
    run: (c) => fast.readOrdered(c, cell(LIGHT), { keys: ['ready0', 'ready4', 'ready8'] }, BATCH),
  },
  {
    name: 'fast lane: followers of a waiting head',
    index: ['in_order', 'due_fast'],
    // The head's own key, which has at most rows / keys rows here.
    examined: 2 * BATCH,
    run: (c, { fast: [head], now }) => fast.deferFollowers(c, [head!], new Date(now.getTime() - 2 * HOUR_MS)),
  },
  {
    name: 'fast lane: release of followers',
    index: ['in_order', 'due_fast'],
    examined: 2 * BATCH,
    run: (c, { fast: [head], now }) => fast.releaseFollowers(c, [head!], new Date(now.getTime() + 2 * HOUR_MS)),
  },
  {
    name: 'fast lane: rows of a dead owner',
    index: ['_id_'],
    examined: 2 * BATCH,
    run: (c, { fast: rows }) =>
      fast.findUnsettled(
        c,
        rows.map(({ _id }) => _id),
        'mark',
      ),
  },
  {
    name: 'outcome: rows that did not start',
    index: ['_id_'],
    examined: 2 * BATCH,
    run: (c, { fast: rows }) => writeOutcomes(c, stampOperations(rows, 'mark')),
  },
  {
    name: 'outcome: rows that succeeded',
    index: ['_id_'],
    examined: 2 * BATCH,
    // Under another claim, so that nothing goes.
    run: (c, { running }) =>
      deleteFinished(
        c,
        running.map((row) => ({ ...row, claim_token: 'another' })),
      ),
  },
  {
    name: 'long lane: cold check over all targets',
    index: ['due_long'],
    examined: 2 * 256,
    run: (c, { now }) => long.findTargetsWithWork(c, [LONG, 'explain:none'], now, 256),
  },
  {
    name: 'long lane: due rows',
    index: ['due_long'],
    examined: 2 * BATCH,
    run: (c, { now }) => long.readDue(c, { target: LONG, busy: [], now, limit: BATCH }),
  },
  {
    name: 'long lane: due rows, busy codes left out',
    index: ['due_long'],
    examined: 2 * BATCH,
    run: (c, { now }) => long.readDue(c, { target: LONG, busy: ['c0', 'c1'], now, limit: BATCH }),
  },
  {
    name: 'long lane: codes that run',
    index: ['running'],
    examined: 2 * CLAIMS,
    run: (c) => long.findRunningCodes(c),
  },
  {
    name: 'long lane: claim',
    index: ['_id_'],
    examined: 2 * BATCH,
    run: (c, { due, now }) =>
      long.claimRows(c, due, { pod: 'pod', token: 'new', now: new Date(0), until: new Date(now.getTime() + HOUR_MS) }),
  },
  {
    name: 'long lane: what a claim won',
    index: ['_id_'],
    examined: 2 * BATCH,
    run: (c, { due }) => long.readClaimed(c, due, 'new'),
  },
  {
    name: 'long lane: renewal',
    index: ['_id_', 'leases'],
    examined: 2 * CLAIMS,
    run: (c, { running }) => long.renewClaims(c, running, running[0]!.lease_until!),
  },
  {
    name: 'long lane: cancel requests',
    index: ['_id_', 'leases'],
    examined: 2 * CLAIMS,
    run: (c, { running }) => long.findCancelRequests(c, running),
  },
  {
    name: 'long lane: expired claims',
    index: ['leases'],
    examined: 2 * CLAIMS,
    run: (c, { now }) => long.findExpired(c, [LONG], now, BATCH),
  },
  {
    name: 'enqueue: keys that are known',
    index: ['dedupe'],
    examined: 2 * BATCH,
    run: ({ jobs }, { fast: rows }) =>
      jobs
        .find({ dedupe_key: { $in: rows.map((row) => row.dedupe_key) } }, { projection: { _id: 0, dedupe_key: 1 } })
        .toArray(),
  },
];
