/** What a pod of the bench is told at its start, and on the way. Times are small, so that everything heals in seconds. */
import type { JobsModuleOptions } from '../../../src/index.js';

export const LEASE_MS = 3_000;
export const PROBE_MS = 300;
/** What runs at a clean stop may end within it. */
export const SHUTDOWN_GRACE_MS = 5_000;

export interface PodSettings {
  name: string;
  seed: string;
  uri: string;
  db: string;
  /** Where its ledger goes, and where files that stand for the outside world lie. */
  folder: string;
  /** Nothing is done to its connections: a machine that is slow for a second breaks none. */
  patient: boolean;
  /** Code version: 2 knows four targets and a schedule more. */
  version: number;
  /** Its wall clock is off by so much, in ms. */
  clock_offset_ms: number;
  /** It enqueues by itself, about so many transactions a second. 0: it does not. */
  produce_per_s: number;
  max_crashes: number;
  /** What it enqueues for. Default: all it knows. */
  targets?: readonly string[];
  /** Shares of its rows that behave so, where a scenario needs more of them than usual. */
  behaviours?: Partial<Record<Behaviour, number>>;
  kafka?: { brokers: string[]; request_timeout_ms: number };
  /** Hints go through it, and a target is lossy. */
  redis_url?: string;
  /** Besides those that every pod has. */
  schedules?: readonly { code: string; cron: string; timezone: string }[];
  /** Its handlers take so long instead of a few ms. */
  handler_ms?: number;
  /** The same for the long lane. */
  long_handler_ms?: number;
  /** Longest run on the long lane. Default 2 s, less than a lease: no undisturbed run needs its claim renewed. */
  long_timeout_ms?: number;
  /** It knows a target with two places per code, and one with a rate limit. */
  limits?: boolean;
}

export type ToPod =
  | { do: 'produce'; per_s: number }
  | { do: 'block'; ms: number }
  | { do: 'clock'; offset_ms: number }
  | { do: 'enqueue'; items: PlannedRow[]; call: number }
  | { do: 'admin'; action: 'retry' | 'skip' | 'cancel' | 'pause' | 'resume'; subject: string; call: number };

export type FromPod = { is: 'ready' } | { is: 'done'; call: number; error?: string };

/**
 * What a row's handler does. `hang`: its first run on a pod does not come back within its time. `lengthy`: it takes more
 * than two leases, and needs a `long_timeout_ms` to match.
 */
export type Behaviour =
  'ok' | 'slow' | 'lengthy' | 'hang' | 'fail_once' | 'fail_twice' | 'away_once' | 'complete' | 'reject' | 'poison';

export interface PlannedRow {
  n: string;
  target: string;
  key?: string;
  code?: string;
  delay_ms?: number;
  behaviour: Behaviour;
}

/** Longest run on the fast lane: Kafka's own deadlines must fit in. */
export const fastTimeoutMs = ({ kafka }: Pick<PodSettings, 'kafka'>): number => (kafka ? 2_200 : 1_000);

/** How long a pod that says nothing keeps its partitions. */
export const termMs = ({ kafka }: Pick<PodSettings, 'kafka'>): number => LEASE_MS + (kafka ? 1_500 : 0);

/** How long a command is waited for. Of an impatient pod: longer than its driver tries by itself. */
export const commandMs = ({ patient }: Pick<PodSettings, 'patient'>): number => (patient ? 60_000 : 3_000);

type Told = Pick<PodSettings, 'max_crashes'> &
  Partial<Pick<PodSettings, 'patient' | 'kafka' | 'redis_url' | 'long_timeout_ms'>>;

export function engineOptions({
  max_crashes,
  patient = false,
  kafka,
  redis_url,
  long_timeout_ms = 2_000,
}: Told): JobsModuleOptions {
  return {
    workers: 'on',
    ...(redis_url && { redis: { url: redis_url } }),
    partitions: 8,
    max_crashes,
    shutdown_grace_ms: SHUTDOWN_GRACE_MS,
    command_timeout_ms: commandMs({ patient }),
    fast_lane: {
      batch_size: 20,
      timeout_ms: fastTimeoutMs({ kafka }),
      idle_poll_ms: [200, 400],
      error_poll_ms: 100,
      page_max_age_ms: 500,
    },
    long_lane: {
      slots: 4,
      lease_ms: LEASE_MS,
      renew_ms: 500,
      timeout_ms: long_timeout_ms,
      idle_poll_ms: [200, 400],
      error_poll_ms: 100,
      sweep_ms: 300,
      cancel_check_ms: 500,
    },
    lease: { ttl_ms: termMs({ kafka }), heartbeat_ms: 500, margin_ms: 200, worker_ttl_ms: LEASE_MS },
    retry: { delays_ms: [100, 200, 400], jitter: 0.1 },
    pause: { probe_ms: PROBE_MS },
  };
}

export const FAST_TARGETS = [
  'fast:at_most_once',
  'fast:at_least_once',
  'fast:batch',
  'fast:batch:at_most_once',
] as const;
export const LONG_TARGETS = ['long:at_most_once', 'long:at_least_once', 'long:exclusive'] as const;
/** Twice, so that they get a good share of the rows. */
export const KAFKA_TARGETS = ['kafka:once', 'kafka:again', 'kafka:once', 'kafka:again'] as const;
/** A code has two places. */
export const PAIR_TARGET = 'long:pair';
/** So many starts in any window. */
export const LIMITED_TARGET = 'fast:limited';
export const LIMIT = { limit: 3, window_ms: 3_000 };
export const LENGTHY_MS = 7_000;
/** Of version 2. */
export const NEW_TARGETS = ['fast:new', 'fast:new:at_most_once', 'long:new', 'long:new:at_most_once'] as const;
/** Their `on_dead` writes that it was called. */
export const MOURNED_TARGETS: readonly string[] = [
  'fast:at_most_once',
  'fast:batch:at_most_once',
  'fast:new:at_most_once',
  'long:at_least_once',
  'long:new:at_most_once',
];
export const LOSSY_TARGET = 'lossy:seen';
export const EXCLUSIVE_CODES = ['x1', 'x2'] as const;

/** Its rows go several in one call, under one mark. */
export const isBatch = (target: string): boolean => target.startsWith('fast:batch');
export const isNew = (target: string): boolean => (NEW_TARGETS as readonly string[]).includes(target);
/** Its jobs may be lost, but not untold. */
export const isLossy = (target: string): boolean => target === LOSSY_TARGET;
export const isAtMostOnce = (target: string): boolean =>
  target.endsWith(':at_most_once') || target === 'kafka:once' || isLossy(target);
