/**
 * Schedules on top of the jobs engine: import once, beside `JobsModule`. Global, so that business modules only inject
 * `SchedulesService` or mark methods with `@Schedule`. Its tick obeys the engine's `workers`; the rows are synced with
 * the code on every pod.
 */
import {
  ConfigurableModuleBuilder,
  Inject,
  Injectable,
  Module,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  type OnModuleDestroy,
} from '@nestjs/common';
import { DiscoveryModule } from '@nestjs/core';
import type { Connection } from 'mongoose';
import { BootError } from '../common/errors.js';
import { JOBS_CONNECTION } from '../jobs/jobs.module.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs/jobs.options.js';
import { EngineLoops } from '../jobs/observability/engine_loops.js';
import { OwnershipCheck } from '../jobs/observability/ownership_check.js';
import { targetOf } from './schedule_declaration.js';
import { SchedulesController } from './schedules.controller.js';
import { SchedulesExplorer } from './schedules.explorer.js';
import { resolveSchedulesOptions, SCHEDULES_CONFIG, type SchedulesModuleOptions } from './schedules.options.js';
import { SchedulesService } from './schedules.service.js';
import { enabledCodes, openSchedules, SCHEDULES_COLLECTIONS, type SchedulesCollections } from './schedules.store.js';
import { SchedulesAdmin } from './schedules_admin.service.js';
import { SchedulesTick } from './schedules_tick.js';
import { SlotRunner } from './slot_runner.js';

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<SchedulesModuleOptions>({
  moduleName: 'Schedules',
})
  .setClassMethodName('forRoot')
  .setExtras({}, (definition: DynamicModule): DynamicModule => ({ ...definition, global: true }))
  .build();

/** Codes a health check looks at. */
const MOST_CODES = 500;

/** Connections that schedules of this process run on: a second module would declare and tick under the same names. */
const taken = new WeakSet<Connection>();

async function prepareDatabase(connection: Connection): Promise<SchedulesCollections> {
  if (taken.has(connection))
    throw new BootError('two_engines', 'SchedulesModule.forRoot() was called twice for one connection: import it once');
  taken.add(connection);
  return openSchedules(connection);
}

/**
 * The loop, and nothing else. A tick needs only the database, which outlives every `onModuleDestroy`; what it enqueues
 * while this pod drains is for the others to run.
 */
@Injectable()
export class SchedulesWorkers implements OnApplicationBootstrap, OnModuleDestroy {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(SchedulesService) private readonly schedules: SchedulesService,
    @Inject(SchedulesTick) private readonly tick: SchedulesTick,
    @Inject(SCHEDULES_COLLECTIONS) collections: SchedulesCollections,
    @Inject(EngineLoops) loops: EngineLoops,
    @Inject(OwnershipCheck) ownership: OwnershipCheck,
  ) {
    loops.add(tick.loop);
    // An enabled schedule that no live pod declares makes no slots, and nobody would notice.
    ownership.addSource(async () => (await enabledCodes(collections, MOST_CODES)).map(targetOf));
  }

  /** Every `onModuleInit` is done: all declarations are known, and no row is written for half of them. */
  async onApplicationBootstrap(): Promise<void> {
    await this.schedules.sync();
    if (this.config.workers === 'on') this.tick.start();
  }

  async onModuleDestroy(): Promise<void> {
    await this.tick.stop();
  }
}

@Module({
  imports: [DiscoveryModule],
  controllers: [SchedulesController],
  providers: [
    {
      provide: SCHEDULES_CONFIG,
      useFactory: (raw: SchedulesModuleOptions) => resolveSchedulesOptions(raw),
      inject: [MODULE_OPTIONS_TOKEN],
    },
    { provide: SCHEDULES_COLLECTIONS, useFactory: prepareDatabase, inject: [JOBS_CONNECTION] },
    SlotRunner,
    SchedulesService,
    SchedulesExplorer,
    SchedulesTick,
    SchedulesAdmin,
    SchedulesWorkers,
  ],
  exports: [SchedulesService],
})
export class SchedulesModule extends ConfigurableModuleClass implements OnApplicationShutdown {
  constructor(@Inject(JOBS_CONNECTION) private readonly connection: Connection) {
    super();
  }

  static override forRoot(options: SchedulesModuleOptions = {}): DynamicModule {
    return super.forRoot(options);
  }

  onApplicationShutdown(): void {
    taken.delete(this.connection);
  }
}
