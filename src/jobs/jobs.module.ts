/**
 * The engine without its loops: enqueue, targets, and everything the loops are made of. Global, so that business
 * modules only inject `SideEffectService`. The loops live in `JobsWorkersModule`, which must not be global: a global
 * module is torn down last, after the host's own services are gone.
 */
import { Inject, Module, type DynamicModule, type OnApplicationShutdown, type Provider } from '@nestjs/common';
import { ConfigurableModuleBuilder } from '@nestjs/common';
import { DiscoveryModule } from '@nestjs/core';
import { getConnectionToken } from '@nestjs/mongoose';
import type { Connection } from 'mongoose';
import { ADMIN_HTTP, type AdminHttpConfig } from '../common/http/admin.guard.js';
import { CLOCK } from '../common/ports/clock.js';
import { ID_SOURCE, systemIds, type IdSource } from '../common/ports/ids.js';
import { RANDOM, systemRandom } from '../common/ports/random.js';
import { AdminAudit } from './admin_audit.service.js';
import { leaveConnection, openClock, prepareDatabase } from './boot.js';
import { JobsEvents } from './jobs.events.js';
import { JobsLog } from './jobs.log.js';
import { JOBS_CONFIG, resolveJobsOptions, type JobsConfig, type JobsModuleOptions } from './jobs.options.js';
import { CellReader } from './lanes/cell_reader.js';
import { CellRound } from './lanes/cell_round.js';
import { RateLimiter } from './lanes/rate_limiter.js';
import { FinishedRows } from './lanes/finished_rows.js';
import { InflightMarks } from './lanes/inflight_marks.js';
import { FastLaneWorker } from './lanes/fast_lane.worker.js';
import { ClaimKeeper } from './lanes/claim_keeper.js';
import { ClaimSweeper } from './lanes/claim_sweeper.js';
import { LivePods } from './lanes/live_pods.js';
import { LongClaims } from './lanes/long_claims.js';
import { LongLaneWorker } from './lanes/long_lane.worker.js';
import { LongRun } from './lanes/long_run.js';
import { OutcomeBatch } from './lanes/outcome_batch.js';
import { JobRunner } from './lanes/job_runner.js';
import { JobOutcome } from './lanes/outcome.service.js';
import { PartitionLeaseService } from './lanes/partition_lease.service.js';
import { POD, thisPod } from './lanes/pod.js';
import { RetentionWorker } from './lanes/retention.worker.js';
import { TakeoverJudge } from './lanes/takeover_judge.js';
import { TargetPause } from './lanes/target_pause.js';
import { LossyModule } from './lossy/lossy.module.js';
import { WakeUp } from './wake_up/wake_up.service.js';
import { EngineHealth } from './observability/engine_health.js';
import { EngineLoops } from './observability/engine_loops.js';
import { JobsHealthIndicator } from './observability/health_indicator.js';
import { OwnershipCheck } from './observability/ownership_check.js';
import { SideEffectService } from './side_effect.service.js';
import { JOBS_COLLECTIONS } from './store/collections.js';
import { JobTargetsExplorer } from './targets/job_targets.explorer.js';
import { JobTargetsRegistry } from './targets/job_targets.registry.js';

export const JOBS_CONNECTION = Symbol('sidelane.connection');

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<JobsModuleOptions>({
  moduleName: 'Jobs',
})
  .setClassMethodName('forRoot')
  .setExtras<{ connectionName?: string }>({}, (definition: DynamicModule, extras): DynamicModule => {
    const connection: Provider = {
      provide: JOBS_CONNECTION,
      useFactory: (found: Connection) => found,
      inject: [getConnectionToken(extras.connectionName)],
    };
    const providers = [...(definition.providers ?? []), connection];
    return { ...definition, global: true, providers, exports: [...(definition.exports ?? []), JOBS_CONNECTION] };
  })
  .build();

const PARTS: Provider[] = [
  {
    provide: JOBS_CONFIG,
    useFactory: (raw: JobsModuleOptions) => resolveJobsOptions(raw),
    inject: [MODULE_OPTIONS_TOKEN],
  },
  {
    provide: ADMIN_HTTP,
    useFactory: ({ admin, context }: JobsConfig): AdminHttpConfig => ({ guards: admin.guards, context }),
    inject: [JOBS_CONFIG],
  },
  { provide: ID_SOURCE, useValue: systemIds },
  { provide: RANDOM, useValue: systemRandom },
  { provide: POD, useFactory: (ids: IdSource) => thisPod(ids), inject: [ID_SOURCE] },
  // The log as well: it words what happens while the boot waits.
  {
    provide: JOBS_COLLECTIONS,
    useFactory: prepareDatabase,
    inject: [JOBS_CONNECTION, JOBS_CONFIG, JobsEvents, JobsLog],
  },
  { provide: CLOCK, useFactory: openClock, inject: [JOBS_COLLECTIONS, JOBS_CONFIG, JobsEvents] },
  JobsEvents,
  JobsLog,
  EngineLoops,
  OwnershipCheck,
  EngineHealth,
  JobsHealthIndicator,
  JobTargetsRegistry,
  JobTargetsExplorer,
  SideEffectService,
  AdminAudit,
  TakeoverJudge,
  LivePods,
  PartitionLeaseService,
  TargetPause,
  JobRunner,
  JobOutcome,
  RateLimiter,
  FinishedRows,
  InflightMarks,
  CellReader,
  CellRound,
  FastLaneWorker,
  OutcomeBatch,
  ClaimKeeper,
  ClaimSweeper,
  LongClaims,
  LongRun,
  LongLaneWorker,
  WakeUp,
  RetentionWorker,
];

@Module({ imports: [DiscoveryModule, LossyModule], providers: PARTS, exports: [...PARTS, LossyModule] })
export class JobsModule extends ConfigurableModuleClass implements OnApplicationShutdown {
  constructor(@Inject(JOBS_CONNECTION) private readonly connection: Connection) {
    super();
  }

  onApplicationShutdown(): void {
    leaveConnection(this.connection);
  }
}
