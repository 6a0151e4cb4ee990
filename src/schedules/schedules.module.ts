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
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { within } from '../common/utils/within.js';
import { waitForDatabase } from '../jobs/boot.js';
import { JobsEvents } from '../jobs/jobs.events.js';
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

/** For a tick under way when the pod ends; part of the 4 s that `endOnSignals` leaves beyond the grace. */
const STOP_MS = 500;
/** Codes a health check looks at. */
const MOST_CODES = 500;

/** Connections that schedules of this process run on: a second module would declare and tick under the same names. */
const taken = new WeakSet<Connection>();

async function prepareDatabase(
  connection: Connection,
  clock: Clock,
  config: JobsConfig,
  events: JobsEvents,
): Promise<SchedulesCollections> {
  if (taken.has(connection))
    throw new BootError('two_engines', 'SchedulesModule.forRoot() was called twice for one connection: import it once');
  taken.add(connection);
  try {
    return await waitForDatabase(() => openSchedules(connection, config), clock, config, events);
  } catch (error) {
    taken.delete(connection); // or a boot that is tried again would find itself in the way
    throw error;
  }
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
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
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
    await waitForDatabase(() => this.schedules.sync(), this.clock, this.config, this.events);
    if (this.config.workers === 'on') this.tick.start();
  }

  /** A tick that waits for a database which is away must not hold the exit; what it does later changes no more than a crash. */
  async onModuleDestroy(): Promise<void> {
    await within(this.clock, STOP_MS, this.tick.stop());
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
    {
      provide: SCHEDULES_COLLECTIONS,
      useFactory: prepareDatabase,
      inject: [JOBS_CONNECTION, CLOCK, JOBS_CONFIG, JobsEvents],
    },
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
