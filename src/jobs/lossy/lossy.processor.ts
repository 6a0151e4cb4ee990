/**
 * Runs lossy jobs: one try each, through the same runner as every lane, dropped and counted when it fails. Takes
 * nothing before `start()` and nothing after `stop()`; waits for Redis in the background, so a boot never does.
 */
import { InjectQueue } from '@nestjs/bull';
import { Inject, Injectable } from '@nestjs/common';
import type { Job as BullJob, Queue } from 'bull';
import { errorText, SidelaneError } from '../../common/errors.js';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { within } from '../../common/utils/within.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobRunner } from '../lanes/job_runner.js';
import { LazyAbort } from '../lanes/lazy_abort.js';
import { rowRef } from '../lanes/row_ref.js';
import { RunCalledOff } from '../lanes/running_row.js';
import { GIVE_UP_MS } from '../lanes/shutdown.js';
import type { RunResult } from '../policy/outcome.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';
import { LOSSY_QUEUE, targetOf, toRow } from './lossy_job.js';
import { LossyConnections } from './lossy_connections.js';
import { LossyDrops } from './lossy_drops.js';

@Injectable()
export class LossyProcessor {
  private readonly running = new Map<Promise<void>, LazyAbort>();
  private stopping = false;
  private started = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @InjectQueue(LOSSY_QUEUE) private readonly queue: Queue<unknown>,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(JobRunner) private readonly runner: JobRunner,
    @Inject(LossyConnections) private readonly connections: LossyConnections,
    @Inject(LossyDrops) private readonly drops: LossyDrops,
  ) {}

  /** Takes jobs from when Redis is there. Without a lossy target: nothing, and no connection. */
  start(): void {
    if (this.targets.hasLossy()) this.connections.whenUp(() => this.take());
  }

  /** Takes nothing more and waits, up to `graceMs`, for what runs; then tells it to give up. True when all ended. */
  async stop(graceMs: number): Promise<boolean> {
    this.stopping = true;
    if (!this.started) return true;
    // Not awaited: it ends Bull's loops at once, and then waits for a connection that may be away.
    void this.queue.close(true).catch(() => undefined);
    this.connections.stopTaking();
    if (await within(this.clock, graceMs, Promise.all(this.running.keys()))) return true;
    for (const abort of this.running.values()) abort.abort(new RunCalledOff('shutdown', 'the pod stops'));
    return within(this.clock, GIVE_UP_MS, Promise.all(this.running.keys()));
  }

  private take(): void {
    if (this.stopping) return;
    this.started = true;
    // Its name for this connection, set without anybody waiting for the answer: an error of it would be unhandled.
    this.queue.setWorkerName = () => Promise.resolve();
    // Told by another pod's jobs whose lock ran out: `job` is gone when the removal was quicker.
    this.queue.on('failed', (job: BullJob<unknown> | null, error: Error) => {
      if (error.message.startsWith('job stalled')) this.drops.add(targetOf(job?.data) ?? 'unknown', 'stalled');
    });
    const ended = this.queue.process(this.config.lossy.concurrency, (job) => this.track(job)) as unknown;
    Promise.resolve(ended).catch((error: unknown) => {
      // Its text alone: the error itself may carry the command, payload and all.
      if (!this.stopping) this.events.emit({ type: 'loop_failed', loop: 'lossy', error: new Error(errorText(error)) });
    });
  }

  private track(job: BullJob<unknown>): Promise<void> {
    const abort = new LazyAbort();
    const run = this.process(job, abort);
    const settled = run.catch(() => undefined).then(() => void this.running.delete(settled));
    this.running.set(settled, abort);
    return run;
  }

  /** Rejects when the job failed, so that Bull's own counters tell the truth; the job is removed either way. */
  private async process(job: BullJob<unknown>, abort: LazyAbort): Promise<void> {
    const name = targetOf(job.data);
    const target = name === undefined ? undefined : this.targets.get(name);
    if (!target?.lossy) return this.drop(name ?? 'unknown', name === undefined ? 'malformed' : 'unknown_target');
    const row = toRow(target, String(job.id), new Date(job.timestamp), job.data);
    if (!row) return this.drop(target.name, 'malformed');
    const begun = this.clock.monotonic();
    const result = await this.runner.runLong(withoutCompletion(target), row, {
      abort,
      progress: () => undefined,
    });
    const ms = this.clock.monotonic() - begun;
    this.events.emit({
      type: 'run_ended',
      row: rowRef(row, 0),
      result: result.kind === 'success' ? 'success' : 'dropped',
      ms,
    });
    if (result.kind !== 'success') this.fail(row, result);
  }

  private fail(row: JobDoc, result: RunResult): never {
    this.drops.add(row.target, 'failed');
    throw new Error(errorText('error' in result ? result.error : result.kind));
  }

  private drop(target: string, reason: 'malformed' | 'unknown_target'): never {
    this.drops.add(target, reason);
    throw new Error(`dropped: ${reason}`);
  }
}

/** There is no row whose removal the handler's transaction could join. */
function withoutCompletion(target: RegisteredTarget): RegisteredTarget {
  const complete = (): Promise<never> =>
    Promise.reject(new SidelaneError('not_supported', 'ctx.complete ends a row: a lossy job has none'));
  return { ...target, handler: (job, context) => target.handler!(job, { ...context, complete }) };
}
