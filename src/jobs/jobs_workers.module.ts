/**
 * The loops, and nothing else. Import it LAST in the host: it is then torn down first, while everything its handlers
 * need still stands. Loops start when all modules are initialised and drain in `onModuleDestroy`, before Mongoose
 * closes its connection. Hooks fire only through `app.close()` or `app.enableShutdownHooks()`.
 */
import { Inject, Injectable, Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { RunLoop } from '../common/run_loop.js';
import { within } from '../common/utils/within.js';
import { JobsEvents } from './jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from './jobs.options.js';
import { ClaimKeeper } from './lanes/claim_keeper.js';
import { ClaimSweeper } from './lanes/claim_sweeper.js';
import { LongLaneWorker } from './lanes/long_lane.worker.js';
import { FastLaneWorker } from './lanes/fast_lane.worker.js';
import { LossyProcessor } from './lossy/lossy.processor.js';
import { WakeUp } from './wake_up/wake_up.service.js';
import { PartitionLeaseService } from './lanes/partition_lease.service.js';
import { RetentionWorker } from './lanes/retention.worker.js';
import { GIVE_UP_MS, LAST_WORD_MS } from './lanes/shutdown.js';
import { TargetPause } from './lanes/target_pause.js';
import { EngineHealth } from './observability/engine_health.js';
import { EngineLoops } from './observability/engine_loops.js';

@Injectable()
export class JobsWorkers implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly heartbeat: RunLoop;
  private readonly claims: RunLoop;
  private readonly sweep: RunLoop;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
    @Inject(FastLaneWorker) private readonly fastLane: FastLaneWorker,
    @Inject(LongLaneWorker) private readonly longLane: LongLaneWorker,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(LossyProcessor) private readonly lossy: LossyProcessor,
    @Inject(WakeUp) private readonly wakeUp: WakeUp,
    @Inject(RetentionWorker) private readonly retention: RetentionWorker,
    @Inject(ClaimKeeper) keeper: ClaimKeeper,
    @Inject(ClaimSweeper) sweeper: ClaimSweeper,
    @Inject(EngineLoops) loops: EngineLoops,
    @Inject(EngineHealth) private readonly health: EngineHealth,
  ) {
    const { sweep_ms, error_poll_ms } = config.long_lane;
    const onError = (loop: string, error: unknown): void => events.emit({ type: 'loop_failed', loop, error });
    this.claims = new RunLoop({
      name: 'claims',
      clock,
      step: () => keeper.look(),
      errorDelayMs: error_poll_ms,
      onError,
    });
    this.sweep = new RunLoop({
      name: 'sweep',
      clock,
      step: async () => ((await sweeper.sweep()) > 0 ? 0 : sweep_ms),
      errorDelayMs: error_poll_ms,
      onError,
    });
    this.heartbeat = new RunLoop({
      name: 'heartbeat',
      clock,
      step: async () => {
        await leases.heartbeat();
        // After the renewal, and bounded: nothing may come between a pod and its leases.
        const { heartbeat_ms } = config.lease;
        if (!(await within(clock, heartbeat_ms, this.pause.refresh())))
          throw new Error(`no answer about paused targets within ${heartbeat_ms} ms`);
        return heartbeat_ms;
      },
      errorDelayMs: Math.min(1_000, config.lease.heartbeat_ms),
      onError,
    });
    loops.add(this.heartbeat, fastLane.loop, longLane.loop, this.claims, this.sweep, retention.loop, health.loop);
  }

  onApplicationBootstrap(): void {
    if (this.config.workers !== 'manual') this.health.start();
    if (this.config.workers !== 'on') return;
    this.heartbeat.start();
    this.fastLane.start();
    this.longLane.start();
    this.claims.start();
    this.sweep.start();
    this.retention.start();
    this.lossy.start();
    this.wakeUp.listen();
  }

  /**
   * Invariant 11: nothing new starts, what runs may finish, outcomes are written, then partitions are given back. Whatever
   * hangs, this ends `shutdown_grace_ms` + 3 s after it began (lanes/shutdown.ts): the leases run out by themselves.
   */
  async onModuleDestroy(): Promise<void> {
    const { shutdown_grace_ms: grace, workers } = this.config;
    this.wakeUp.deafen();
    const lanes = [this.fastLane.stop(grace), this.longLane.stop(grace), this.lossy.stop(grace)];
    const drained = Promise.all([this.health.stop(), this.sweep.stop(), this.retention.stop(), ...lanes]);
    if (workers === 'off') return void (await drained);
    const idleGivenBack = this.leave(); // nobody need wait for the longest handler here
    await within(this.clock, grace + 2 * GIVE_UP_MS, drained);
    // Only now: running handlers need their leases and claims renewed until they end.
    await within(this.clock, LAST_WORD_MS, Promise.all([this.heartbeat.stop(), this.claims.stop()]));
    const left = idleGivenBack.then(() => this.leave());
    await within(this.clock, LAST_WORD_MS, Promise.all([left, this.pause.written()]));
  }

  /** A database that is away must not fail the shutdown, but somebody should know. */
  private leave(): Promise<void> {
    return this.leases
      .leave()
      .catch((error: unknown) => this.events.emit({ type: 'loop_failed', loop: 'leave', error }));
  }
}

@Module({ providers: [JobsWorkers] })
export class JobsWorkersModule {}
