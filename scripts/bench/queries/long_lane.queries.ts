// The long lane: claims, renewals, sweeps.
import * as long from '../../../src/jobs/store/long_lane.store.js';
import { BATCH, BUSY, CLAIMS, HOUR_MS, LONG, query, type EngineQuery, type Loaded } from './query.js';

const COLD = 256;
/** Due before anything is: so it claims nothing. */
const claim = ({ now }: Loaded): long.Claim => ({
  pod: 'pod',
  token: 'new',
  now: new Date(0),
  until: new Date(now.getTime() + HOUR_MS),
});

export const LONG_LANE_QUERIES: readonly EngineQuery[] = [
  query({
    name: 'long lane: cold check over all targets',
    of: long.findTargetsWithWork,
    ask: (send, { jobs, now }) => send(jobs, [LONG, 'explain:none'], now, COLD),
    index: 'due_long',
    examined: 2 * COLD,
  }),
  query({
    name: 'long lane: due rows',
    of: long.readDue,
    ask: (send, { jobs, now }) => send(jobs, { target: LONG, busy: [], now, limit: BATCH }),
    index: 'due_long',
    examined: 2 * BATCH,
  }),
  query({
    name: 'long lane: due rows, busy codes left out',
    of: long.readDue,
    ask: (send, { jobs, now }) => send(jobs, { target: LONG, busy: ['c0', 'c1'], now, limit: BATCH }),
    index: 'due_long',
    examined: 2 * BATCH,
  }),
  query({
    name: 'long lane: due rows behind the backlog of a busy code',
    of: long.readDue,
    ask: (send, { jobs, now }) => send(jobs, { target: BUSY, busy: ['busy'], now, limit: BATCH }),
    index: 'due_long',
    examined: 2 * BATCH,
    grows: 'due rows of codes that are busy and stand before the others: stepped over in the index, never read',
  }),
  query({
    name: 'long lane: codes that run',
    of: long.findRunningCodes,
    ask: (send, { jobs }) => send(jobs),
    index: 'running',
    examined: 2 * CLAIMS,
  }),
  query({
    name: 'long lane: claim',
    of: long.claimRows,
    ask: (send, loaded) => send(loaded.jobs, loaded.due, claim(loaded)),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'long lane: what a claim won',
    of: long.readClaimed,
    ask: (send, { jobs, due }) => send(jobs, due, 'new'),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'long lane: claim of an exclusive code',
    of: long.claimExclusive,
    ask: (send, loaded) => send(loaded.jobs, loaded.due[0]!, 'exclusive0', claim(loaded)),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'long lane: renewal',
    of: long.renewClaims,
    ask: (send, { jobs, running }) => send(jobs, running, running.at(-1)!.lease_until!),
    index: ['_id_', 'leases'],
    examined: 2 * CLAIMS,
  }),
  query({
    name: 'long lane: claims that still stand',
    of: long.findOwned,
    ask: (send, { jobs, running }) => send(jobs, running),
    index: ['_id_', 'leases'],
    examined: 2 * CLAIMS,
  }),
  query({
    name: 'long lane: cancel requests',
    of: long.findCancelRequests,
    ask: (send, { jobs, running }) => send(jobs, running),
    index: ['_id_', 'leases'],
    examined: 2 * CLAIMS,
  }),
  query({
    name: 'long lane: progress',
    of: long.writeProgress,
    ask: (send, { jobs, running: [row], now }) => send(jobs, [{ row: row!, progress: { percent: 1, at: now } }]),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'long lane: expired claims',
    of: long.findExpired,
    ask: (send, { jobs, now }) => send(jobs, [LONG], now, BATCH),
    index: 'leases',
    examined: 2 * CLAIMS,
  }),
  query({
    name: 'long lane: expired claim of a cancelled row',
    of: long.removeCancelled,
    ask: (send, { jobs, running: [row], now }) => send(jobs, row!, now),
    index: '_id_',
    examined: 2,
  }),
];
