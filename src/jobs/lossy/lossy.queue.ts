/**
 * Hands lossy jobs to Redis, or drops and counts them. Never fails its caller, never makes it wait longer than the
 * option `lossy.handover_timeout_ms` for all jobs of one commit, never keeps a job for later.
 *
 * A job without an answer by then counts as dropped (`timeout`): it may still have arrived. While such an answer is
 * missing, further jobs are dropped at once instead of making each commit wait.
 */
import { InjectQueue } from '@nestjs/bull';
import { Inject, Injectable, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import type { Queue } from 'bull';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { errorText } from '../../common/errors.js';
import type { RedisLink } from '../../common/redis/redis_link.js';
import { within } from '../../common/utils/within.js';
import type { LossyDropReason } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { LOSSY_QUEUE, type LossyJob } from './lossy_job.js';
import { LossyConnections } from './lossy_connections.js';
import { LossyDrops } from './lossy_drops.js';

/** Payloads on their way at once, all together; the count alone would not bound them. */
const MAX_BYTES_IN_FLIGHT = 32 * 1024 * 1024;

@Injectable()
export class LossyQueue implements OnApplicationBootstrap, OnApplicationShutdown {
  private inFlight = 0;
  private bytesInFlight = 0;
  /** A job had no answer in time, and Redis has said nothing since. */
  private silent = false;
  private stopped = false;
  private watching = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @InjectQueue(LOSSY_QUEUE) private readonly queue: Queue<unknown>,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(LossyConnections) private readonly connections: LossyConnections,
    @Inject(LossyDrops) private readonly drops: LossyDrops,
  ) {
    queue.on('error', () => undefined); // told by the connection's state and by each job's own end
  }

  /** Connects early, so that the first job does not wait for it; without a lossy target there is no connection. */
  onApplicationBootstrap(): void {
    if (this.targets.hasLossy()) this.link();
  }

  /** Resolves when every job is taken or dropped, at the deadline at the latest. Never rejects. */
  async handOver(jobs: readonly LossyJob[]): Promise<void> {
    const admitted = jobs.filter((job) => this.admit(job));
    if (admitted.length === 0) return;
    const undecided = new Set(admitted);
    const sends = admitted.map((job) => this.send(job, undecided));
    const answered = await this.inTime(Promise.all(sends));
    if (answered) return;
    this.silent = true;
    for (const job of undecided) this.drops.add(job.data.target, 'timeout');
    undecided.clear();
  }

  /** Requests, and their enqueues, may come until the HTTP server has closed: this phase is after it. */
  async onApplicationShutdown(): Promise<void> {
    this.stopped = true;
    await this.connections.close((answer) => this.inTime(answer));
  }

  private link(): RedisLink {
    const { main } = this.connections;
    if (!this.watching) main.client.on('ready', () => void (this.silent = false));
    this.watching = true;
    return main;
  }

  private admit(job: LossyJob): boolean {
    const reason = this.refusal(job);
    if (reason) {
      this.drops.add(job.data.target, reason);
      return false;
    }
    this.inFlight++;
    this.bytesInFlight += job.bytes;
    return true;
  }

  private refusal(job: LossyJob): LossyDropReason | undefined {
    if (this.stopped) return 'stopped';
    const main = this.link();
    if (main.state === 'down') return reasonOf(main.lastError);
    if (this.silent) return 'timeout';
    if (this.inFlight >= this.config.lossy.max_in_flight) return 'busy';
    return this.bytesInFlight > 0 && this.bytesInFlight + job.bytes > MAX_BYTES_IN_FLIGHT ? 'busy' : undefined;
  }

  /** In flight until Redis has answered or the connection broke, however long ago the caller went on. */
  private async send(job: LossyJob, undecided: Set<LossyJob>): Promise<void> {
    try {
      const main = this.link();
      await main.tried;
      if (!undecided.has(job)) return; // it counts as dropped by now: sent late it would be counted wrong
      if (!main.up) throw main.lastError;
      await this.queue.add(job.data, { attempts: 1, removeOnComplete: true, removeOnFail: true, jobId: job.id });
      this.silent = false;
      undecided.delete(job);
    } catch (error) {
      const reason = reasonOf(error);
      if (reason !== 'unreachable') this.silent = false; // it spoke
      if (undecided.delete(job)) this.drops.add(job.data.target, reason);
    } finally {
      this.inFlight--;
      this.bytesInFlight -= job.bytes;
    }
  }

  private inTime(work: Promise<unknown>): Promise<boolean> {
    return within(this.clock, this.config.lossy.handover_timeout_ms, work);
  }
}

function reasonOf(error: unknown): LossyDropReason {
  const text = errorText(error);
  if (/^OOM\b|\bOOM command/.test(text)) return 'full';
  if (/NOAUTH|WRONGPASS|NOPERM|invalid password/i.test(text)) return 'login';
  return (error as { name?: unknown } | undefined)?.name === 'ReplyError' ? 'refused' : 'unreachable';
}
