/**
 * Runs a batch through its target's handler and turns whatever happens into one result per row. Never throws, and
 * always settles: a handler that does not come back within the target's time gives its slot back with an unknown end.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { crashPoint } from '../../common/ports/crash_points.js';
import { SidelaneError } from '../../common/errors.js';
import { outsideTransaction } from '../../common/utils/transaction.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import type { Job, JobContext } from '../jobs.types.js';
import { inRunSpan } from '../observability/job_traces.js';
import { afterCallOff } from '../policy/called_off.js';
import { classifyError, classifyInBatch, targetVerdict, type RunResult } from '../policy/outcome.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import { TargetOutcomeUnknown } from '../targets/target_errors.js';
import { JobOutcome } from './outcome.service.js';
import { LazyAbort } from './lazy_abort.js';
import { toJob } from './row_ref.js';
import type { RunResults } from './run_results.js';
import { RunCalledOff } from './running_row.js';

/** What the long lane adds to a run: it can be called off from outside, and tells how far it is. */
export interface LongRun {
  readonly abort: LazyAbort;
  progress(percent: number, note?: string): void;
}

@Injectable()
export class JobRunner {
  /** Runs of the fast lane under way; those of the long lane are called off through their claims. */
  private readonly short = new Set<LazyAbort>();

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** `mayStart` is asked right before each start: rows fetched early must not start after the lease is gone. */
  async run(target: RegisteredTarget, sequences: readonly JobDoc[][], mayStart: () => boolean): Promise<RunResults> {
    const results: RunResults = new Map(sequences.flat().map((row) => [row, { kind: 'not_started' }]));
    if (target.batch_handler) await this.runBatch(target, sequences.flat(), results, mayStart);
    else await this.runSequences(target, sequences, results, mayStart);
    return results;
  }

  /** One row of the long lane. A run that takes too long ends as `timed_out`: one slow job is not its target being down. */
  runLong(target: RegisteredTarget, row: JobDoc, run: LongRun): Promise<RunResult> {
    return this.attempt(target, [row], {
      call: ([job], context) => target.handler!(job!, context),
      onValue: succeed,
      timedOut: (error) => ({ kind: 'timed_out', error }),
      ...run,
    });
  }

  /** The fast lane's grace is over: its handlers are told to give up. */
  callOffShort(message: string): void {
    for (const abort of this.short) abort.abort(new RunCalledOff('shutdown', message));
  }

  private async runSequences(
    target: RegisteredTarget,
    sequences: readonly JobDoc[][],
    results: RunResults,
    mayStart: () => boolean,
  ): Promise<void> {
    let halted = false;
    const runOne = async (sequence: JobDoc[]): Promise<void> => {
      for (const row of sequence) {
        if (halted || !mayStart()) return;
        const call: Attempt['call'] = ([job], context) => target.handler!(job!, context);
        const result = await this.attempt(target, [row], { call, onValue: succeed });
        results.set(row, result);
        if (targetVerdict(result, target.delivery_mode) === 'down') halted = true;
        if (result.kind !== 'success') return; // what stands behind it waits for its turn
      }
    };
    await Promise.all(sequences.map(runOne));
  }

  private async runBatch(
    target: RegisteredTarget,
    rows: JobDoc[],
    results: RunResults,
    mayStart: () => boolean,
  ): Promise<void> {
    if (!mayStart()) return;
    let answer: readonly (Error | undefined)[] = [];
    const abort = new LazyAbort();
    this.short.add(abort);
    const whole = await this.attempt(target, rows, {
      abort,
      call: (jobs, context) => target.batch_handler!(jobs, withoutCompletion(context)),
      onValue: (value) => {
        answer = Array.isArray(value) ? (value as readonly (Error | undefined)[]) : [];
        return succeed();
      },
    });
    rows.forEach((row, index) => {
      const error = answer[index];
      if (whole.kind === 'answered') results.set(row, { ...whole, speaks_for_many: rows.length > 1 });
      else if (whole.kind === 'success' && error) {
        const first_of_key = rows.findIndex(({ order_key }) => order_key === row.order_key) === index;
        const result = classifyInBatch(error, { alone: rows.length === 1, first_of_key });
        results.set(row, failsByCallOff(abort.reason) ? afterCallOff(result, target.delivery_mode) : result);
      } else results.set(row, whole);
    });
  }

  private attempt(target: RegisteredTarget, rows: readonly JobDoc[], run: Attempt): Promise<RunResult> {
    this.events.emit({ type: 'run_started', target: target.name, rows: rows.length });
    return inRunSpan(target.name, rows, (traceparent) => this.call(target, rows, { ...run, traceparent }));
  }

  /**
   * One call of a handler, in a clean context, with a deadline: whichever ends first is the result. One promise for all of
   * it, since a busy pod makes thousands a second.
   */
  private call(target: RegisteredTarget, rows: readonly JobDoc[], run: Traced<Attempt>): Promise<RunResult> {
    const row = rows[0]!;
    const { traceparent = row.traceparent, abort = new LazyAbort() } = run;
    const jobs = rows.length === 1 ? [continued(toJob(row), traceparent)] : rows.map(toJob);
    if (!run.abort) this.short.add(abort);
    let completed = false;
    const context: JobContext = {
      get signal() {
        return abort.signal;
      },
      attempt: row.attempts + 1,
      ...(row.trace_id !== undefined && { trace_id: row.trace_id }),
      ...(traceparent !== undefined && { traceparent }),
      progress: run.progress ?? noProgress,
      complete: async (work) => {
        await this.outcome.complete(target, row, work);
        completed = true;
      },
    };
    return new Promise((resolve) => {
      const timer = this.clock.after(target.timeout_ms, () => {
        const error = new TargetOutcomeUnknown(`no answer within ${target.timeout_ms} ms`);
        abort.abort(error);
        end((run.timedOut ?? classifyError)(error));
      });
      const end = (result: RunResult): void => {
        this.short.delete(abort);
        timer.cancel();
        crashPoint('after_answer');
        if (completed) resolve({ kind: 'completed' });
        else resolve(failsByCallOff(abort.reason) ? afterCallOff(result, target.delivery_mode) : result);
      };
      const answered = (result: () => RunResult): void => {
        crashPoint('before_answer');
        end(result());
      };
      const follow = (work: Promise<unknown>): void =>
        void work.then(
          (value) => answered(() => run.onValue(value)),
          (error: unknown) => answered(() => classifyError(error)),
        );
      let called: Promise<unknown> | undefined;
      const begin = (): Promise<unknown> => (called = (async () => run.call(jobs, context))());
      const opened = { trace_id: row.trace_id, traceparent, actor: { ...row.actor, via: 'system' } };
      crashPoint('before_send');
      try {
        const work = outsideTransaction(() => this.config.context.run(opened, begin));
        crashPoint('after_send');
        follow(work);
      } catch (error) {
        // The host's own context store failed. What it called runs on, and its end is the result; otherwise the row has
        // failed as by its handler. Thrown on, it would leave the runs beside this one without their outcomes.
        follow(called ?? Promise.reject(error as Error));
      }
    });
  }
}

type Traced<T> = T & { traceparent: string | undefined };

interface Attempt {
  call(jobs: readonly Job[], context: JobContext): Promise<unknown>;
  onValue(value: unknown): RunResult;
  /** Default: the end is unknown, which speaks against the target. */
  timedOut?(error: unknown): RunResult;
  abort?: LazyAbort;
  progress?(percent: number, note?: string): void;
}

/** What the handler sends on belongs to its run, not to the enqueue before it. */
const continued = (job: Job, traceparent: string | undefined): Job =>
  traceparent === undefined ? job : { ...job, traceparent };

/** Told to give up by us, so its failure is no answer. What an admin cancelled is removed, however it ends. */
function failsByCallOff(reason: unknown): boolean {
  return reason instanceof RunCalledOff && reason.why !== 'cancelled';
}

const succeed = (): RunResult => ({ kind: 'success' });

/** Short sends have no progress to tell. */
const noProgress = (): void => undefined;

const noCompletion = (): Promise<never> =>
  Promise.reject(new SidelaneError('not_supported', 'ctx.complete ends one row: a batch handler answers for many'));

/** The signal stays lazy: a spread would build it. */
function withoutCompletion(context: JobContext): JobContext {
  return Object.create(context, { complete: { value: noCompletion, enumerable: true } }) as JobContext;
}
