/** The targets of a pod of the bench: they tell the ledger what reaches them, and behave as their row says. */
import type { Connection, mongo } from 'mongoose';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import {
  JobRejected,
  type SideEffectService,
  TargetUnreachable,
  type BatchJobHandler,
  type Job,
  type JobContext,
  type JobHandler,
  type JobTargetOptions,
  type Tx,
} from '../../../src/index.js';
import { partitionOf } from '../../../src/jobs/policy/partition.js';
import type { ClaimKeeper } from '../../../src/jobs/lanes/claim_keeper.js';
import type { PartitionLeaseService } from '../../../src/jobs/lanes/partition_lease.service.js';
import type { Ending, Ledger } from './ledger.js';
import {
  fastTimeoutMs,
  isAtMostOnce,
  isLossy,
  LENGTHY_MS,
  LIMIT,
  LIMITED_TARGET,
  LOSSY_TARGET,
  MOURNED_TARGETS,
  NEW_TARGETS,
  PAIR_TARGET,
  type Behaviour,
  type PodSettings,
} from './pod_settings.js';

const PARTITIONS = 8;
/** Rows of a batch at most once that a takeover may find in flight; default would be one. */
const BATCH = 20;

export interface Payload {
  n: string;
  behaviour: Behaviour;
}

export interface Surroundings {
  readonly settings: PodSettings;
  readonly ledger: Ledger;
  readonly connection: Connection;
  /** Of the business itself. A host bounds its own commands as the engine does its, or its calls end with the driver's. */
  collection(name: string): mongo.Collection;
  readonly sideEffect: SideEffectService;
  readonly leases: PartitionLeaseService;
  readonly keeper: ClaimKeeper;
}

export class BenchTargets {
  private runs = 0;
  private readonly awayOnce = new Set<string>();
  private readonly hungOnce = new Set<string>();

  constructor(private readonly pod: Surroundings) {}

  all(): JobTargetOptions[] {
    const handler: JobHandler = (job, context) => this.handle(job, context);
    const batch_handler: BatchJobHandler = (jobs) => this.handleBatch(jobs);
    return [
      this.usual('fast:at_most_once', { handler }),
      this.usual('fast:at_least_once', { handler }),
      this.usual('fast:batch', { batch_handler }),
      this.usual('fast:batch:at_most_once', { batch_handler, max_in_flight: BATCH }),
      this.usual('long:at_most_once', { handler }),
      this.usual('long:at_least_once', { handler }),
      this.usual('long:exclusive', { handler, exclusive: true }),
      ...(this.pod.settings.limits ? this.limited(handler) : []),
      ...(this.pod.settings.version >= 2 ? NEW_TARGETS.map((name) => this.usual(name, { handler })) : []),
      ...(this.pod.settings.redis_url ? [{ name: LOSSY_TARGET, lane: 'fast', lossy: true, handler } as const] : []),
    ];
  }

  /** Lane and mode as its name says. */
  private usual(name: string, rest: Partial<JobTargetOptions>): JobTargetOptions {
    return {
      name,
      lane: name.startsWith('fast:') ? 'fast' : 'long',
      delivery_mode: isAtMostOnce(name) ? 'at_most_once' : 'at_least_once',
      ...(MOURNED_TARGETS.includes(name) && { on_dead: (job, tx) => this.mourn(job, tx) }),
      ...rest,
    };
  }

  private limited(handler: JobHandler): JobTargetOptions[] {
    const rate_limit = { key: () => LIMITED_TARGET, ...LIMIT };
    return [
      { name: PAIR_TARGET, lane: 'long', delivery_mode: 'at_least_once', max_running: 2, handler },
      { name: LIMITED_TARGET, lane: 'fast', delivery_mode: 'at_least_once', rate_limit, handler },
    ];
  }

  /** For schedules: the slot's row is told to the ledger as any other. */
  async slot(job: Job, slot: Date): Promise<void> {
    const run = this.begin(job, `${job.code}@${slot.toISOString()}`, slot.toISOString());
    await pause(5);
    this.end(run, 'ok');
  }

  private async handle(job: Job, context: JobContext): Promise<void> {
    const { n, behaviour } = job.payload as unknown as Payload;
    const run = this.begin(job, n);
    const error = this.obstacle(job, n, behaviour);
    if (behaviour === 'poison' && !error) {
      this.pod.ledger.write({ what: 'poisoned', n });
      process.kill(process.pid, 'SIGKILL');
    }
    if (behaviour === 'hang' && !error && !this.hungOnce.has(n)) return this.hang(run, context);
    await pause(this.runTime(job, behaviour, error));
    if (!error && behaviour === 'complete') await this.complete(run, job, context);
    this.end(run, error ? endingOf(error) : 'ok');
    if (error) throw error;
  }

  /** Comes back when it is told to give up, which is too late: how it ended is unknown by then. */
  private async hang(run: Run, { signal }: JobContext): Promise<void> {
    this.hungOnce.add(run.n);
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
    this.end(run, 'failed');
    throw new Error('told to give up');
  }

  private runTime({ target }: Job, behaviour: Behaviour, error: Error | undefined): number {
    const { handler_ms, long_handler_ms } = this.pod.settings;
    if (behaviour === 'lengthy') return LENGTHY_MS;
    if (long_handler_ms !== undefined && target.startsWith('long:')) return long_handler_ms;
    return error ? 1 : (handler_ms ?? (behaviour === 'slow' ? 250 : 5));
  }

  private async handleBatch(jobs: readonly Job[]): Promise<(Error | undefined)[]> {
    const runs = jobs.map((job) => this.begin(job, (job.payload as unknown as Payload).n));
    const answers = jobs.map((job) => {
      const { n, behaviour } = job.payload as unknown as Payload;
      if (behaviour === 'poison') {
        this.pod.ledger.write({ what: 'poisoned', n });
        process.kill(process.pid, 'SIGKILL');
      }
      return this.obstacle(job, n, behaviour);
    });
    await pause(this.pod.settings.handler_ms ?? 10);
    runs.forEach((run, index) => this.end(run, answers[index] ? endingOf(answers[index]) : 'ok'));
    return answers;
  }

  /** The next row of the chain exists if and only if this one is gone. */
  private async complete(run: Run, job: Job, context: JobContext): Promise<void> {
    const { n } = job.payload as unknown as Payload;
    const next: Payload = { n: `${n}+`, behaviour: 'ok' };
    try {
      await context.complete(async (tx) => {
        const doc = { n: next.n, target: 'fast:at_least_once', behaviour: 'ok', chained: true };
        await this.pod.collection('produced').insertOne(doc, { session: tx.session });
        await this.pod.sideEffect.enqueue('fast:at_least_once', next, { dedupe_key: next.n }, tx);
      });
    } catch (error) {
      this.end(run, 'failed');
      throw error;
    }
  }

  private obstacle(job: Job, n: string, behaviour: Behaviour): Error | undefined {
    if (existsSync(join(this.pod.settings.folder, `down ${job.target.replace(':', ' ')}`))) {
      return new TargetUnreachable('the target is down');
    }
    if (behaviour === 'fail_once' && job.attempts < 1) return new Error('an answered failure');
    if (behaviour === 'fail_twice' && job.attempts < 2) return new Error('an answered failure');
    if (behaviour === 'reject') return new JobRejected('never');
    if (behaviour === 'away_once' && !this.awayOnce.has(n)) {
      this.awayOnce.add(n);
      return new TargetUnreachable('away for a moment');
    }
    return undefined;
  }

  private begin(job: Job, n: string, slot?: string): Run {
    const run = { n, run: ++this.runs };
    const fast = job.target.startsWith('fast:');
    const claimed = !fast && !isLossy(job.target); // a lossy job has no row that anybody could own
    this.pod.ledger.write({
      what: 'start',
      ...run,
      id: job.id,
      target: job.target,
      key: job.key ?? (['long:exclusive', PAIR_TARGET].includes(job.target) ? job.code : undefined),
      version: job.version,
      attempt: job.attempts + 1,
      ...(fast && this.lease(job)),
      ...(claimed && { room: this.claimRoom(job) }),
      ...(slot && { slot }),
    });
    return run;
  }

  private lease(job: Job): { partition: number; term: string; room: number } {
    const partition = partitionOf(job.key ?? job.dedupe_key, PARTITIONS);
    const owned = this.pod.leases.get(partition);
    const room = owned ? owned.deadline - performance.now() - fastTimeoutMs(this.pod.settings) : 0;
    return { partition, term: owned?.term.lease_token ?? 'none', room: Math.round(room) };
  }

  /** Negative, which the judge does not let pass, for a row whose claim nobody keeps. */
  private claimRoom({ id }: Job): number {
    const kept = this.pod.keeper.rows().find((row) => row.id === id);
    return kept ? Math.round(kept.deadline - performance.now()) : -1;
  }

  private end(run: Run, result: Ending): void {
    this.pod.ledger.write({ what: 'end', ...run, result });
  }

  private async mourn(job: Job, tx: Tx): Promise<unknown> {
    return this.pod.collection('mourned').insertOne({ job: job.id }, { session: tx.session });
  }
}

interface Run {
  n: string;
  run: number;
}

const endingOf = (error: Error): Ending => (error instanceof TargetUnreachable ? 'unreachable' : 'failed');

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
