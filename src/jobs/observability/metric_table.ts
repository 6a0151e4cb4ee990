/**
 * Every metric of the engine: name, kind, labels, meaning. `docs/metrics.md` repeats it (a test compares them), the
 * dashboard and the alert rules name nothing else. Labels are bounded: `target` by `TargetLabels`, the others by a set
 * that the code fixes. Never a key, an id, a caller's code or an error text.
 */
export interface MetricSpec {
  readonly name: string;
  readonly kind: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

const counter = (name: string, help: string, ...labels: string[]): MetricSpec => ({
  name: `sidelane_${name}_total`,
  kind: 'counter',
  help,
  labels,
});
const gauge = (name: string, help: string, ...labels: string[]): MetricSpec => ({
  name: `sidelane_${name}`,
  kind: 'gauge',
  help,
  labels,
});

/** Seconds: a send takes milliseconds, a long job an hour. */
export const DURATION_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800];

export const METRICS = {
  enqueued: counter('jobs_enqueued', 'Rows whose enqueue committed on this pod', 'target', 'lane'),
  started: counter('runs_started', 'Rows given to a handler', 'target', 'lane'),
  ended: counter('runs_ended', 'Runs that ended, by the class of their outcome', 'target', 'lane', 'outcome'),
  duration: {
    name: 'sidelane_run_duration_seconds',
    kind: 'histogram',
    help: 'Time of a run; rows of one batch each count the whole batch',
    labels: ['target', 'lane'],
  },
  dead: counter('jobs_dead', 'Rows that went DEAD', 'target'),
  cancelled: counter('jobs_cancelled', 'Rows removed because an admin cancelled them', 'target'),
  skipped: counter('jobs_skipped', 'DEAD rows removed because an admin skipped them', 'target'),
  onDeadFailed: counter('on_dead_failed', 'on_dead hooks that failed; the row is DEAD without them', 'target'),
  rateLimited: counter('rate_limited', 'Rows that waited because their rate limit was used up', 'target'),
  pauses: counter('target_pauses', 'Pauses this pod found or learned of', 'target', 'by'),
  paused: gauge('target_paused', '1 while the target is paused, as this pod knows it', 'target'),
  probes: counter('target_probes', 'Probes of a paused target that this pod was permitted', 'target'),
  takeovers: counter('takeovers', 'Rows found in flight when a partition was taken over', 'target', 'verdict'),
  reclaimed: counter('reclaimed', 'Long-lane rows whose lease ran out while they ran', 'verdict'),
  claims: counter('claims', 'Long-lane rows claimed'),
  claimConflicts: counter('claim_conflicts', 'Long-lane rows chosen for a claim and won by somebody else, or busy'),
  claimsLost: counter(
    'claims_lost',
    'Long-lane runs whose row belonged to somebody else before they ended',
    'target',
    'at',
  ),
  outcomesLost: counter(
    'outcomes_lost',
    'Fast-lane outcomes that matched nothing: somebody else had ended the row',
    'target',
  ),
  outcomesKept: counter('outcomes_kept', 'Outcomes that could not be written at once and were kept', 'target'),
  roundsFailed: counter('rounds_failed', 'Rounds of fast-lane cells that an error ended', 'target'),
  loopFailures: counter('loop_failures', 'Rounds of background loops that an error ended', 'loop'),
  partitionsTaken: counter('partitions_taken', 'Partitions this pod took'),
  partitionsReleased: counter('partitions_released', 'Partitions this pod gave back'),
  partitionsLost: counter('partitions_lost', 'Partitions another pod took from this one'),
  slotsEnqueued: counter('slots_enqueued', 'Schedule slots that became a row', 'target'),
  slotsSkipped: counter('slots_skipped', 'Schedule slots that got no run', 'target', 'at'),
  schedulesBroken: counter('schedules_broken', 'Findings of a schedule that cannot be used', 'target'),
  lossyDropped: counter('lossy_dropped', 'Jobs of lossy targets that were dropped or failed', 'target', 'reason'),
  redisUp: gauge('redis_up', '1 while Redis answers this use of it', 'use'),
  partitionsOwned: gauge('partitions_owned', 'Partitions this pod serves'),
  loopAge: gauge('loop_age_seconds', 'Time since the last round of a loop ended', 'loop'),
  loopLate: gauge('loop_late_seconds', 'For how long a good round of a loop is overdue', 'loop'),
  eventLoopBlocked: gauge('event_loop_blocked_seconds', 'Longest block of the event loop in the last 30 to 60 s'),
  health: gauge('health_problems', 'Partitions, names or loops that have the problem; 0 when there is none', 'problem'),
  backlog: gauge('backlog', 'Rows in a state, counted up to admin.count_limit', 'state'),
  oldestDue: gauge(
    'oldest_due_age_seconds',
    'Age of the oldest due row (fast lane: of the partitions this pod owns)',
    'target',
  ),
  backlogAge: gauge('backlog_read_age_seconds', 'How old the numbers of the backlog are'),
} as const satisfies Record<string, MetricSpec>;

export type MetricName = keyof typeof METRICS;
