// Every query of the engine, each called through its store function; and which of those ask nothing that has a plan.
// `test/store/explain_coverage.spec.ts` fails when a store function is in neither list.
import * as change from '../../src/jobs/store/admin_change.store.js';
import * as counts from '../../src/jobs/store/admin_counts.store.js';
import * as audit from '../../src/jobs/store/audit.store.js';
import * as look from '../../src/jobs/store/bounded_look.store.js';
import * as boot from '../../src/jobs/store/boot.store.js';
import * as enqueue from '../../src/jobs/store/enqueue.store.js';
import * as long from '../../src/jobs/store/long_lane.store.js';
import * as schedules from '../../src/schedules/schedules.store.js';
import { ADMIN_QUERIES, HEALTH_QUERIES } from './queries/admin.queries.js';
import { FAST_LANE_QUERIES } from './queries/fast_lane.queries.js';
import { LONG_LANE_QUERIES } from './queries/long_lane.queries.js';
import type { EngineQuery, StoreFunction } from './queries/query.js';
import { ROW_QUERIES } from './queries/rows.queries.js';
import { SCHEDULE_QUERIES } from './queries/schedules.queries.js';
import { SHARED_QUERIES } from './queries/shared_state.queries.js';

export const ENGINE_QUERIES: readonly EngineQuery[] = [
  ...FAST_LANE_QUERIES,
  ...LONG_LANE_QUERIES,
  ...ROW_QUERIES,
  ...SHARED_QUERIES,
  ...ADMIN_QUERIES,
  ...HEALTH_QUERIES,
  ...SCHEDULE_QUERIES,
];

/** Why there is no plan to be seen. */
export const WITHOUT_A_PLAN: ReadonlyMap<StoreFunction, string> = new Map<StoreFunction, string>([
  [boot.ensureIndexes, 'creates indexes and collections'],
  [schedules.openSchedules, 'creates indexes'],
  [enqueue.insertAlone, 'inserts'],
  [audit.insertAudit, 'inserts'],
  [schedules.insertSchedule, 'inserts'],
  [look.findWithin, 'asked for by lists and slices'],
  [look.countWithin, 'asked for by counts'],
  [long.claimId, 'names a claim, without the database'],
  [change.revival, 'makes an update, without the database'],
  [counts.countOf, 'looks into counts, without the database'],
]);
