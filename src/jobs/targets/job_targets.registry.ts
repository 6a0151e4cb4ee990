/**
 * What this pod can run: target name to handler and delivery rules. In memory, filled before the loops start.
 * Targets a pod does not know it leaves alone: their rows are neither read nor charged.
 */
import { Inject, Injectable } from '@nestjs/common';
import { InvalidInputError, SidelaneError } from '../../common/errors.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { DeliveryMode, JobLane, type BatchJobHandler, type JobHandler } from '../jobs.types.js';

export interface JobTargetOptions {
  /** `<area>:<thing>`, `kafka:<topic>`. */
  name: string;
  lane: JobLane;
  /** Runs one job; distinct keys side by side, one key in order. Exactly one of `handler` and `batch_handler`. */
  handler?: JobHandler;
  /** Runs a whole batch whose keys stand in order; answers per row, or throws for all. */
  batch_handler?: BatchJobHandler;
  /** Default `at_most_once`. */
  delivery_mode?: DeliveryMode;
  /** Rows that one mark may put in flight: what a takeover can leave unknown. Default 1 at most once, else the batch. */
  max_in_flight?: number;
  /** Cells of this target that run side by side. Default `fast_lane.concurrency`. */
  concurrency?: number;
  /** Bytes of one batch. Default `fast_lane.batch_bytes`. */
  batch_bytes?: number;
  /** Longest run, in ms. Default, and at most, `fast_lane.timeout_ms`. */
  timeout_ms?: number;
  /** Answered failures that make a row DEAD. Default: one more than there are retry delays. */
  max_attempts?: number;
  /** Checks a payload at enqueue; throws what is wrong with it. */
  validate?(payload: unknown): void;
}

export type RegisteredTarget = Readonly<
  Required<Omit<JobTargetOptions, 'handler' | 'batch_handler' | 'validate'>> &
    Pick<JobTargetOptions, 'handler' | 'batch_handler' | 'validate'>
>;

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
      throw new InvalidInputError(
        'invalid_target',
        `target ${options.name}: expected exactly one of handler and batch_handler`,
        'handler',
      );
    }
    this.targets.set(options.name, this.withDefaults(options));
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

  inLane(lane: JobLane): RegisteredTarget[] {
    return [...this.targets.values()].filter((target) => target.lane === lane);
  }

  private withDefaults(options: JobTargetOptions): RegisteredTarget {
    const { fast_lane, retry } = this.config;
    const mode = options.delivery_mode ?? DeliveryMode.atMostOnce;
    const target: RegisteredTarget = {
      ...options,
      delivery_mode: mode,
      max_in_flight: options.max_in_flight ?? (mode === DeliveryMode.atMostOnce ? 1 : fast_lane.batch_size),
      concurrency: options.concurrency ?? fast_lane.concurrency,
      batch_bytes: options.batch_bytes ?? fast_lane.batch_bytes,
      timeout_ms: options.timeout_ms ?? fast_lane.timeout_ms,
      max_attempts: options.max_attempts ?? retry.delays_ms.length + 1,
    };
    for (const field of ['max_in_flight', 'concurrency', 'batch_bytes', 'timeout_ms', 'max_attempts'] as const) {
      if (!Number.isSafeInteger(target[field]) || target[field] < 1) {
        throw new InvalidInputError(
          'invalid_target',
          `target ${options.name}: ${field}: expected a whole number from 1, got ${target[field]}`,
          field,
        );
      }
    }
    // A send starts only while the lease outlives it (invariant 5), so a longer run could never start.
    if (target.lane === JobLane.fast && target.timeout_ms > fast_lane.timeout_ms) {
      throw new InvalidInputError(
        'invalid_target',
        `target ${options.name}: timeout_ms: expected at most fast_lane.timeout_ms (${fast_lane.timeout_ms}), got ${target.timeout_ms}`,
        'timeout_ms',
      );
    }
    return target;
  }
}
