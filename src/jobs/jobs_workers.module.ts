/**
 * The loops, and nothing else. Import it LAST in the host: it is then torn down first, while everything its handlers
 * need still stands. Loops start when all modules are initialised and drain in `onModuleDestroy`, before Mongoose
 * closes its connection. Hooks fire only through `app.close()` or `app.enableShutdownHooks()`.
 */
import { Inject, Injectable, Module, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { RunLoop } from '../common/run_loop.js';
import { JobsEvents } from './jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from './jobs.options.js';
import { FastLaneWorker } from './lanes/fast_lane.worker.js';
import { PartitionLeaseService } from './lanes/partition_lease.service.js';

@Injectable()
export class JobsWorkers implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly heartbeat: RunLoop;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
    @Inject(FastLaneWorker) private readonly fastLane: FastLaneWorker,
  ) {
    this.heartbeat = new RunLoop({
      name: 'heartbeat',
      clock,
      step: async () => {
        await leases.heartbeat();
        return config.lease.heartbeat_ms;
      },
      errorDelayMs: Math.min(1_000, config.lease.heartbeat_ms),
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
  }

  onApplicationBootstrap(): void {
    if (this.config.workers !== 'on') return;
    this.heartbeat.start();
    this.fastLane.start();
  }

  /** Invariant 11: nothing new starts, what runs may finish, outcomes are written, then partitions are given back. */
  async onModuleDestroy(): Promise<void> {
    await this.fastLane.stop(this.config.shutdown_grace_ms);
    await this.heartbeat.stop(); // only now: running handlers need their leases renewed until they end
    if (this.config.workers === 'off') return;
    // A database that is away must not hold the shutdown: the leases expire by themselves, but somebody should know.
    await this.leases
      .leave()
      .catch((error: unknown) => this.events.emit({ type: 'loop_failed', loop: 'leave', error }));
  }
}

@Module({ providers: [JobsWorkers] })
export class JobsWorkersModule {}
