/**
 * What this pod can run: target name to handler and delivery rules. In memory, filled before the loops start.
 * Targets a pod does not know it leaves alone: their rows are neither read nor charged.
 */
import { Inject, Injectable } from '@nestjs/common';
import { BootError, InvalidInputError, SidelaneError } from '../../common/errors.js';
import type { Tx } from '../../common/utils/transaction.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { DeliveryMode, JobLane, type BatchJobHandler, type Job, type JobHandler } from '../jobs.types.js';
import type { OutcomeRules } from '../policy/outcome.js';
import { rateLimitFault, type RateLimit } from '../policy/rate_limit.js';
import { retryPolicyFault, type RetryPolicy } from '../policy/retry.js';
import { payloadSchemaFault, type PayloadSchema } from './payload_schema.js';

export interface JobTargetOptions {
  /** `<area>:<thing>`, `kafka:<topic>`, `schedule:<code>`. */
  name: string;
  lane: JobLane;
  /** Runs one job; on the fast lane distinct keys side by side, one key in order. Exactly one of the two handlers. */
  handler?: JobHandler;
  /** Fast lane: runs a whole batch whose keys stand in order; answers per row, or throws for all. */
  batch_handler?: BatchJobHandler;
  /** Default `at_most_once` on the fast lane, `at_least_once` on the long lane. */
  delivery_mode?: DeliveryMode;
  /** Fast lane: rows that one mark may put in flight, what a takeover can leave unknown. Default 1 at most once, else the batch. */
  max_in_flight?: number;
  /** Cells (fast lane) or rows per pod (long lane) of this target that run side by side. Default: the lane's. */
  concurrency?: number;
  /** Fast lane: bytes of one batch. Default `fast_lane.batch_bytes`. */
  batch_bytes?: number;
  /** Longest run, in ms, up to 30 days. Default the lane's `timeout_ms`; on the fast lane that is the most, too. */
  timeout_ms?: number;
  /** Answered failures that make a row DEAD. Default: one more than there are retry delays. */
  max_attempts?: number;
  /** Waits after answered failures. Default: the option `retry`. */
  retry?: RetryPolicy;
  /** Exceptions by the job's code. */
  codes?: Readonly<Record<string, CodeRules>>;
  /**
   * May be lost: no row in Mongo; handed to Redis after the commit, one try, dropped on failure. In no order, at most
   * once. Needs the option `redis.url`. Rows that were enqueued before the target became lossy still run in their lane.
   */
  lossy?: boolean;
  /** Long lane: at most one RUNNING row per code, over all pods. The same as `max_running: 1`. */
  exclusive?: boolean;
  /** Long lane: at most this many RUNNING rows per code, over all pods; 1 to 10,000. */
  max_running?: number;
  /** At most so many starts per rate key in any window, over all pods; what is too many waits, at no attempt. */
  rate_limit?: RateLimit;
  /**
   * Keeps finished rows as DONE for this long, in ms up to 10 years, so that their `dedupe_key` goes on rejecting replays.
   * Default: deleted.
   */
  keep_done_ms?: number;
  /** Lets DEAD rows expire after this long, in ms up to 10 years. Default: they stay for ever. */
  keep_dead_ms?: number;
  /**
   * Called when a row of this target goes DEAD, in that very transaction: what it writes or enqueues with `tx` exists if
   * and only if the row is DEAD. It runs again when the transaction does. An error of its own is logged and does not keep
   * the row from going DEAD, nor does a hook that needs more than 20 calls or 10 s for one row: it goes DEAD without it.
   */
  on_dead?(job: Job, tx: Tx): Promise<unknown>;
  /** Paths of the payload that nobody is shown: `card.number`, `items.*.secret`. */
  redact?: readonly string[];
  /** Checked at every enqueue, before anything is written; changes nothing (payload_schema.ts). Synchronous. */
  schema?: PayloadSchema;
}

/** What a code changes of its target's rules. */
export interface CodeRules {
  max_attempts?: number;
  retry?: RetryPolicy;
}

type WithDefaults =
  | 'delivery_mode'
  | 'max_in_flight'
  | 'concurrency'
  | 'batch_bytes'
  | 'timeout_ms'
  | 'max_attempts'
  | 'retry'
  | 'codes'
  | 'redact';

/** A target as the engine uses it: defaults filled in. `max_running` stands for `exclusive` as well. */
export type RegisteredTarget = Readonly<
  Omit<JobTargetOptions, WithDefaults | 'exclusive'> & Required<Pick<JobTargetOptions, WithDefaults>>
>;

/** How failures of one row of this target are judged: the target's rules, or its code's. */
export function rulesFor(target: RegisteredTarget, code: string): OutcomeRules {
  const own = Object.hasOwn(target.codes, code) ? target.codes[code] : undefined;
  return {
    delivery_mode: target.delivery_mode,
    max_attempts: own?.max_attempts ?? attemptsOf(own?.retry) ?? target.max_attempts,
    retry: own?.retry ?? target.retry,
  };
}

/** A list of delays says how often a row is tried: one of ten under its target's limit of six would end after six. */
function attemptsOf(retry: RetryPolicy | undefined): number | undefined {
  return retry && 'delays_ms' in retry ? retry.delays_ms.length + 1 : undefined;
}

const DAY_MS = 24 * 3600 * 1000;

/** Beyond these a row's dates, or the list of a code's places, could not be made: bson stores an invalid date as 1970. */
const MOST: Readonly<Partial<Record<keyof RegisteredTarget, number>>> = {
  timeout_ms: 30 * DAY_MS,
  max_running: 10_000,
  keep_done_ms: 3650 * DAY_MS,
  keep_dead_ms: 3650 * DAY_MS,
};

const NOT_FOR_LOSSY = [
  'batch_handler',
  'exclusive',
  'max_running',
  'max_attempts',
  'retry',
  'codes',
  'keep_done_ms',
  'keep_dead_ms',
  'on_dead',
  'rate_limit',
] as const;

@Injectable()
export class JobTargetsRegistry {
  private readonly targets = new Map<string, RegisteredTarget>();

  constructor(@Inject(JOBS_CONFIG) private readonly config: JobsConfig) {}

  /** Throws `duplicate_target` on a repeated name and `invalid_target` on a declaration that cannot work. */
  register(options: JobTargetOptions): void {
    if (typeof options.name !== 'string' || !/^[^\s$\0]{1,200}$/.test(options.name)) {
      throw new InvalidInputError(
        'invalid_target',
        `target name ${JSON.stringify(options.name)}: expected 1 to 200 characters without blanks or "$"`,
        'name',
      );
    }
    if (this.targets.has(options.name)) {
      throw new SidelaneError('duplicate_target', `target ${options.name} is registered twice`, 'name');
    }
    if (!options.handler === !options.batch_handler) {
      throw invalid(options.name, 'handler', 'expected exactly one of handler and batch_handler');
    }
    if (options.lossy) this.checkLossy(options);
    this.targets.set(options.name, this.withDefaults(options));
  }

  /** Nothing is kept of a lossy job, so what speaks of keeping, counting or trying again cannot hold for it. */
  private checkLossy(options: JobTargetOptions): void {
    if (options.delivery_mode === DeliveryMode.atLeastOnce)
      throw invalid(options.name, 'delivery_mode', 'a lossy target has one try');
    for (const field of NOT_FOR_LOSSY) {
      if (options[field] !== undefined && options[field] !== false)
        throw invalid(options.name, field, 'a lossy target cannot have it: its jobs get one try and leave no row');
    }
    if (!this.config.redis.url) {
      throw new BootError(
        'lossy_without_redis',
        `target ${options.name}: a lossy target needs Redis: set the option redis.url (or QUEUE_REDIS_URL)`,
        'jobs.redis.url',
      );
    }
  }

  get(name: string): RegisteredTarget | undefined {
    return this.targets.get(name);
  }

  /** The target, or `unknown_target`, thrown before anything is written. */
  require(name: string, field = 'target'): RegisteredTarget {
    const target = this.targets.get(name);
    if (!target)
      throw new InvalidInputError(
        'unknown_target',
        `target ${JSON.stringify(name)} is not registered on this pod`,
        field,
      );
    return target;
  }

  /** Every target this pod knows, by name. */
  all(): RegisteredTarget[] {
    return [...this.targets.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  inLane(lane: JobLane): RegisteredTarget[] {
    return [...this.targets.values()].filter((target) => target.lane === lane);
  }

  /** Whether this pod has a use for Redis beyond hints. */
  hasLossy(): boolean {
    return [...this.targets.values()].some((target) => target.lossy);
  }

  private withDefaults({ exclusive, ...options }: JobTargetOptions): RegisteredTarget {
    const { fast_lane, long_lane, retry } = this.config;
    const fast = options.lane === JobLane.fast;
    const mode = options.delivery_mode ?? (fast ? DeliveryMode.atMostOnce : DeliveryMode.atLeastOnce);
    const own = options.retry ?? retry;
    const target: RegisteredTarget = {
      ...options,
      delivery_mode: mode,
      max_in_flight: options.max_in_flight ?? (mode === DeliveryMode.atMostOnce ? 1 : fast_lane.batch_size),
      concurrency: options.concurrency ?? (fast ? fast_lane.concurrency : long_lane.slots),
      batch_bytes: options.batch_bytes ?? fast_lane.batch_bytes,
      timeout_ms: options.timeout_ms ?? (fast ? fast_lane : long_lane).timeout_ms,
      max_attempts: options.max_attempts ?? ('delays_ms' in own ? own : retry).delays_ms.length + 1,
      retry: own,
      codes: options.codes ?? {},
      redact: options.redact ?? [],
      ...(exclusive && { max_running: 1 }),
    };
    this.check(target, { exclusive: exclusive === true, given: options });
    return target;
  }

  private check(target: RegisteredTarget, { exclusive, given }: { exclusive: boolean; given: JobTargetOptions }): void {
    const { name, lane } = target;
    if (lane !== JobLane.fast && lane !== JobLane.long)
      throw invalid(name, 'lane', `expected fast or long, got ${String(lane)}`);
    if (!Object.values(DeliveryMode).includes(target.delivery_mode)) {
      throw invalid(
        name,
        'delivery_mode',
        `expected ${Object.values(DeliveryMode).join(' or ')}, got ${String(target.delivery_mode)}`,
      );
    }
    const numbers = ['max_in_flight', 'concurrency', 'batch_bytes', 'timeout_ms', 'max_attempts'] as const;
    for (const field of [...numbers, 'max_running', 'keep_done_ms', 'keep_dead_ms'] as const) {
      const value = target[field];
      const most = MOST[field];
      if (value !== undefined && (!Number.isSafeInteger(value) || value < 1 || value > (most ?? value))) {
        throw invalid(name, field, `expected a whole number from 1${most ? ` to ${most}` : ''}, got ${value}`);
      }
    }
    const fault = retryPolicyFault(target.retry);
    if (fault) throw invalid(name, 'retry', fault);
    const limitFault = target.rate_limit !== undefined && rateLimitFault(target.rate_limit);
    if (limitFault) throw invalid(name, 'rate_limit', limitFault);
    const schemaFault = target.schema !== undefined && payloadSchemaFault(target.schema);
    if (schemaFault) throw invalid(name, 'schema', schemaFault);
    for (const [code, rules] of Object.entries(target.codes)) checkCode(name, code, rules);
    if (lane === JobLane.fast) {
      // A send starts only while the lease outlives it (invariant 5), so a longer run could never start.
      const most = this.config.fast_lane.timeout_ms;
      if (target.timeout_ms > most) {
        throw invalid(name, 'timeout_ms', `expected at most fast_lane.timeout_ms (${most}), got ${target.timeout_ms}`);
      }
      if (target.max_running !== undefined) {
        throw invalid(
          name,
          exclusive ? 'exclusive' : 'max_running',
          'only the long lane counts running rows; the fast lane has keys',
        );
      }
    } else {
      if (target.batch_handler) throw invalid(name, 'batch_handler', 'the long lane runs row by row');
      if (exclusive && given.max_running !== undefined && given.max_running !== 1) {
        throw invalid(name, 'max_running', 'expected either exclusive or max_running');
      }
    }
  }
}

function checkCode(target: string, code: string, { max_attempts, retry, ...rest }: CodeRules): void {
  const unknown = Object.keys(rest)[0];
  if (unknown !== undefined) throw invalid(target, `codes.${code}.${unknown}`, 'unknown option');
  if (max_attempts !== undefined && (!Number.isSafeInteger(max_attempts) || max_attempts < 1)) {
    throw invalid(target, `codes.${code}.max_attempts`, `expected a whole number from 1, got ${max_attempts}`);
  }
  const fault = retry && retryPolicyFault(retry);
  if (fault) throw invalid(target, `codes.${code}.retry`, fault);
}

function invalid(target: string, field: string, reason: string): InvalidInputError {
  return new InvalidInputError('invalid_target', `target ${target}: ${field}: ${reason}`, field);
}
