/**
 * Runs a batch through its target's handler and turns whatever happens into one result per row. Never throws, and
 * always settles: a handler that does not come back within the target's time gives its slot back with an unknown end.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { outsideTransaction } from '../../common/utils/transaction.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import type { Job, JobContext } from '../jobs.types.js';
import { classifyError, targetVerdict, type RunResult } from '../policy/outcome.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import { TargetOutcomeUnknown } from '../targets/target_errors.js';

export type RunResults = Map<JobDoc, RunResult>;

@Injectable()
export class JobRunner {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** `mayStart` is asked right before each start: rows fetched early must not start after the lease is gone. */
  async run(target: RegisteredTarget, sequences: readonly JobDoc[][], mayStart: () => boolean): Promise<RunResults> {
    const results: RunResults = new Map(sequences.flat().map((row) => [row, { kind: 'not_started' }]));
    if (target.batch_handler) await this.runBatch(target, sequences.flat(), results, mayStart);
    else await this.runSequences(target, sequences, results, mayStart);
    return results;
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
        const result = await this.attempt(target, row, (context) => target.handler!(toJob(row), context), succeed);
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
    const whole = await this.attempt(
      target,
      rows[0]!,
      (context) => target.batch_handler!(rows.map(toJob), context),
      (value) => {
        answer = Array.isArray(value) ? (value as readonly (Error | undefined)[]) : [];
        return succeed();
      },
    );
    rows.forEach((row, index) => {
      const error = answer[index];
      if (whole.kind === 'answered') results.set(row, { ...whole, speaks_for_many: rows.length > 1 });
      else if (whole.kind === 'success' && error) results.set(row, classifyError(error));
      else results.set(row, whole);
    });
  }

  /** One call of a handler, in a clean context, with a deadline. */
  private async attempt(
    target: RegisteredTarget,
    row: JobDoc,
    call: (context: JobContext) => Promise<unknown>,
    onValue: (value: unknown) => RunResult,
  ): Promise<RunResult> {
    const abort = new AbortController();
    const context: JobContext = { signal: abort.signal, attempt: row.attempts + 1 };
    const deadline = this.deadline(target, abort);
    try {
      const opened = { trace_id: row.trace_id, traceparent: row.traceparent, actor: { ...row.actor, via: 'system' } };
      const work = outsideTransaction(() => this.config.context.run(opened, async () => call(context)));
      return await Promise.race([work.then(onValue, classifyError), deadline.passed]);
    } finally {
      deadline.cancel();
    }
  }

  private deadline(target: RegisteredTarget, abort: AbortController): { passed: Promise<RunResult>; cancel(): void } {
    let cancel = (): void => undefined;
    const passed = new Promise<RunResult>((resolve) => {
      const timer = this.clock.after(target.timeout_ms, () => {
        const error = new TargetOutcomeUnknown(`no answer within ${target.timeout_ms} ms`);
        abort.abort(error);
        resolve(classifyError(error));
      });
      cancel = () => timer.cancel();
    });
    return { passed, cancel };
  }
}

const succeed = (): RunResult => ({ kind: 'success' });

function toJob(row: JobDoc): Job {
  return {
    id: row._id.toHexString(),
    target: row.target,
    code: row.code,
    ...(row.key !== undefined && { key: row.key }),
    version: row.version,
    payload: row.payload,
    dedupe_key: row.dedupe_key,
    headers: row.headers ?? {},
    attempts: row.attempts,
    ...(row.trace_id !== undefined && { trace_id: row.trace_id }),
    ...(row.traceparent !== undefined && { traceparent: row.traceparent }),
    ...(row.actor !== undefined && { actor: row.actor }),
    created_at: row.created_at,
  };
}
