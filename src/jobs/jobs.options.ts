/**
 * The engine's options: one table of defaults, one pure resolve-and-validate. Code injects the resolved `JobsConfig`,
 * never the raw options. Every tuning number of the reference (section 8) is here with the reference's value.
 */
import type { CanActivate, Type } from '@nestjs/common';
import { BootError } from '../common/errors.js';
import type { ContextStore } from '../common/request_context.js';
import { requestContext } from '../common/request_context.js';
import { checkOptions, type Rules } from './options_check.js';

/** `on`: loops run. `off`: this pod only enqueues. `manual`: nothing runs until `runOnce()` is called (tests). */
export type WorkersMode = 'on' | 'off' | 'manual';

export interface JobsConfig {
  /** Default: the environment's `JOBS_WORKERS` (`off`), else `on`. */
  readonly workers: WorkersMode;
  /** Number of fast-lane partitions: a fact of the database, written at the first boot. */
  readonly partitions: number;
  /** Largest row, in bytes of BSON. */
  readonly max_payload_bytes: number;
  /** Takeovers that may find a row in flight before it goes DEAD. */
  readonly max_crashes: number;
  /** How long running handlers may go on after a shutdown began, in ms. */
  readonly shutdown_grace_ms: number;
  /** How long a boot waits for a database that went away after Mongoose had connected, in ms. */
  readonly boot_wait_ms: number;
  /** No command of the engine is waited for longer, in ms: it counts as one whose reply was lost. */
  readonly command_timeout_ms: number;
  /** Runs kept in a row's `history`. */
  readonly history_size: number;
  readonly fast_lane: {
    /** Rows of one read, and of one send. */
    readonly batch_size: number;
    /** Bytes of one batch; a single larger row still runs, alone. */
    readonly batch_bytes: number;
    /** Cells of one target that run side by side. */
    readonly concurrency: number;
    /** Longest run of a handler; also the time a lease must still have when one starts. */
    readonly timeout_ms: number;
    /** Waits between cold checks while they come back empty. */
    readonly idle_poll_ms: readonly number[];
    /** Wait after an error of the database. */
    readonly error_poll_ms: number;
    /** Rows a cold check reads to find the cells that have work. */
    readonly cold_check_limit: number;
    /** Rows read longer ago than this are read again before they start. */
    readonly page_max_age_ms: number;
  };
  readonly long_lane: {
    /** Rows this pod runs at once. */
    readonly slots: number;
    /** How long a claim holds without a renewal. */
    readonly lease_ms: number;
    /** Interval of the one update that renews every running row. */
    readonly renew_ms: number;
    /** Longest run of a handler, where its target says nothing else. */
    readonly timeout_ms: number;
    /** Waits between checks while they come back empty. */
    readonly idle_poll_ms: readonly number[];
    /** Wait after an error of the database. */
    readonly error_poll_ms: number;
    /** Interval of the search for rows whose lease expired. */
    readonly sweep_ms: number;
    /** Interval of the look for cancel requests, while something runs. */
    readonly cancel_check_ms: number;
  };
  readonly lease: {
    readonly ttl_ms: number;
    readonly heartbeat_ms: number;
    /** Distrust of the own clock: a lease counts as gone this much earlier. */
    readonly margin_ms: number;
    /** A pod counts as live while its heartbeat is newer than this. */
    readonly worker_ttl_ms: number;
  };
  readonly retry: {
    /** Wait after the first, second, … answered failure; one more failure than there are delays is DEAD. */
    readonly delays_ms: readonly number[];
    /** Share of the delay added at random, so that rows that failed together do not return together. */
    readonly jitter: number;
  };
  readonly pause: {
    /** How long an unreachable target rests before one probe goes through. */
    readonly probe_ms: number;
  };
  readonly admin: {
    /** Nest guards (classes or instances) in front of every admin route. None: every admin route answers 403. */
    readonly guards: readonly AdminGuardOption[];
    /** Most rows one bulk action changes. */
    readonly bulk_limit: number;
    /** Most rows a count looks at; a larger one is told as "at least". */
    readonly count_limit: number;
  };
  readonly health: {
    /** Interval of the questions to the database, in ms. */
    readonly check_ms: number;
    /** A loop without a good round for this long is stalled. */
    readonly late_ms: number;
    /** The process did not get to its work for this long: its event loop was blocked. */
    readonly blocked_ms: number;
    /** How often a problem that lasts is told again. */
    readonly repeat_ms: number;
  };
  readonly redis: {
    /** Where Redis is, `redis[s]://user:password@host:port/db`. Default: `QUEUE_REDIS_URL`. Empty: there is none. */
    readonly url: string;
  };
  readonly lossy: {
    /** How long a commit may wait for Redis to take its lossy jobs, all together; what is not taken by then is dropped. */
    readonly handover_timeout_ms: number;
    /** Lossy jobs of this pod on their way to Redis at once; more are dropped at once. */
    readonly max_in_flight: number;
    /** Lossy jobs this pod runs at once. */
    readonly concurrency: number;
  };
  /** `off`: no lane is woken by a commit, here or on other pods. Slower, and nothing else (tests, measurements). */
  readonly hints: 'on' | 'off';
  /** Where trace and actor come from. */
  readonly context: ContextStore;
}

/** A class (resolved through Nest, so it may inject what the host provides) or an instance. */
export type AdminGuardOption = Type<CanActivate> | CanActivate;

type DeepPartial<T> = {
  [K in keyof T]?: T[K] extends readonly unknown[] | ContextStore
    ? T[K]
    : T[K] extends object
      ? DeepPartial<T[K]>
      : T[K];
};

export type JobsModuleOptions = DeepPartial<JobsConfig>;

const MINUTE = 60_000;

export const JOBS_DEFAULTS: JobsConfig = {
  workers: 'on',
  partitions: 64,
  max_payload_bytes: 1024 * 1024,
  max_crashes: 5,
  shutdown_grace_ms: 25_000,
  boot_wait_ms: 2 * MINUTE,
  command_timeout_ms: MINUTE,
  history_size: 10,
  fast_lane: {
    batch_size: 100,
    batch_bytes: 4 * 1024 * 1024,
    concurrency: 8,
    timeout_ms: 15_000,
    idle_poll_ms: [1_000, 2_000, 5_000],
    error_poll_ms: 1_000,
    cold_check_limit: 256,
    page_max_age_ms: 2_000,
  },
  long_lane: {
    slots: 10,
    lease_ms: 5 * MINUTE,
    renew_ms: MINUTE,
    timeout_ms: 60 * MINUTE,
    idle_poll_ms: [1_000, 2_000, 5_000, 10_000],
    error_poll_ms: 1_000,
    sweep_ms: 30_000,
    cancel_check_ms: 5_000,
  },
  lease: { ttl_ms: 30_000, heartbeat_ms: 10_000, margin_ms: 1_000, worker_ttl_ms: 30_000 },
  retry: { delays_ms: [1, 2, 4, 8, 16].map((minutes) => minutes * MINUTE), jitter: 0.1 },
  pause: { probe_ms: 30_000 },
  admin: { guards: [], bulk_limit: 10_000, count_limit: 10_000 },
  health: { check_ms: MINUTE, late_ms: MINUTE, blocked_ms: 2_000, repeat_ms: 5 * MINUTE },
  redis: { url: '' },
  lossy: { handover_timeout_ms: 200, max_in_flight: 1_000, concurrency: 10 },
  hints: 'on',
  context: requestContext,
};

const RULES: Rules = {
  workers: { oneOf: ['on', 'off', 'manual'] },
  partitions: { int: [1, 4096] },
  max_payload_bytes: { int: [1024, 15 * 1024 * 1024] },
  max_crashes: { int: [1, 100] },
  shutdown_grace_ms: { int: [0, 3_600_000] },
  boot_wait_ms: { int: [0, 3_600_000] },
  command_timeout_ms: { int: [100, 3_600_000] },
  history_size: { int: [0, 100] },
  'fast_lane.batch_size': { int: [1, 1000] },
  'fast_lane.batch_bytes': { int: [1024, 16 * 1024 * 1024] },
  'fast_lane.concurrency': { int: [1, 1000] },
  'fast_lane.timeout_ms': { int: [10, 600_000] },
  'fast_lane.idle_poll_ms': { ints: [10, 600_000] },
  'fast_lane.error_poll_ms': { int: [10, 600_000] },
  'fast_lane.cold_check_limit': { int: [1, 10_000] },
  'fast_lane.page_max_age_ms': { int: [1, 600_000] },
  'long_lane.slots': { int: [1, 10_000] },
  'long_lane.lease_ms': { int: [100, 24 * 3_600_000] },
  'long_lane.renew_ms': { int: [10, 24 * 3_600_000] },
  'long_lane.timeout_ms': { int: [10, 30 * 24 * 3_600_000] },
  'long_lane.idle_poll_ms': { ints: [10, 600_000] },
  'long_lane.error_poll_ms': { int: [10, 600_000] },
  'long_lane.sweep_ms': { int: [10, 3_600_000] },
  'long_lane.cancel_check_ms': { int: [10, 3_600_000] },
  'lease.ttl_ms': { int: [100, 3_600_000] },
  'lease.heartbeat_ms': { int: [10, 3_600_000] },
  'lease.margin_ms': { int: [0, 60_000] },
  'lease.worker_ttl_ms': { int: [100, 3_600_000] },
  'retry.delays_ms': { ints: [0, 365 * 24 * 60 * MINUTE] },
  'retry.jitter': { number: [0, 1] },
  'pause.probe_ms': { int: [10, 3_600_000] },
  'admin.guards': { classes: true },
  'admin.bulk_limit': { int: [1, 1_000_000] },
  'admin.count_limit': { int: [1, 1_000_000] },
  'health.check_ms': { int: [10, 3_600_000] },
  'health.late_ms': { int: [10, 3_600_000] },
  'health.blocked_ms': { int: [10, 3_600_000] },
  'health.repeat_ms': { int: [10, 24 * 3_600_000] },
  'redis.url': { secretUrl: ['redis:', 'rediss:'] },
  'lossy.handover_timeout_ms': { int: [1, 60_000] },
  'lossy.max_in_flight': { int: [1, 1_000_000] },
  'lossy.concurrency': { int: [1, 1_000] },
  hints: { oneOf: ['on', 'off'] },
  context: { object: ['current', 'run'] },
};

export const JOBS_CONFIG = Symbol('sidelane.config');

/** Fills in the defaults and checks everything at once. Throws `BootError('invalid_options')` that lists every fault. */
export function resolveJobsOptions(
  raw: JobsModuleOptions = {},
  env: Readonly<Record<string, string | undefined>> = process.env,
): JobsConfig {
  const { value, errors } = checkOptions<JobsConfig>('jobs', raw, { ...JOBS_DEFAULTS, ...fromEnv(env) }, RULES);
  if (errors.length === 0) errors.push(...crossFieldErrors(value));
  if (errors.length > 0) throw new BootError('invalid_options', errors.join('\n'), errors[0]?.split(':')[0]);
  return value;
}

function fromEnv(env: Readonly<Record<string, string | undefined>>): Pick<JobsConfig, 'workers' | 'redis'> {
  return {
    workers: env['JOBS_WORKERS'] === 'off' ? 'off' : 'on',
    redis: { url: env['QUEUE_REDIS_URL'] ?? '' },
  };
}

function crossFieldErrors({ lease, fast_lane, long_lane }: JobsConfig): string[] {
  const errors: string[] = [];
  if (lease.heartbeat_ms > lease.ttl_ms / 2) {
    errors.push(
      `jobs.lease.heartbeat_ms: expected at most half of lease.ttl_ms (${lease.ttl_ms / 2}), got ${lease.heartbeat_ms}`,
    );
  }
  // A send starts only while its lease outlives it. Right before a heartbeat a healthy lease has ttl - heartbeat left.
  const room = lease.ttl_ms - lease.heartbeat_ms - lease.margin_ms;
  if (fast_lane.timeout_ms > room) {
    errors.push(
      `jobs.fast_lane.timeout_ms: expected at most lease.ttl_ms - lease.heartbeat_ms - lease.margin_ms (${room}), got ${fast_lane.timeout_ms}`,
    );
  }
  // Two renewals in a row may fail before a claim is lost.
  if (long_lane.renew_ms > long_lane.lease_ms / 3) {
    errors.push(
      `jobs.long_lane.renew_ms: expected at most a third of long_lane.lease_ms (${long_lane.lease_ms / 3}), got ${long_lane.renew_ms}`,
    );
  }
  // A row starts only while its claim outlives the first renewal; a shorter lease could start none.
  if (long_lane.renew_ms + lease.margin_ms >= long_lane.lease_ms) {
    errors.push(
      `jobs.long_lane.lease_ms: expected more than long_lane.renew_ms + lease.margin_ms (${long_lane.renew_ms + lease.margin_ms}), got ${long_lane.lease_ms}`,
    );
  }
  return errors;
}
