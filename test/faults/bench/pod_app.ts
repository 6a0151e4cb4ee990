/** The application of a pod of the bench: all lanes and delivery modes, schedules, the admin services, and a producer. */
import 'reflect-metadata';
import {
  Inject,
  Injectable,
  Module,
  type DynamicModule,
  type OnModuleDestroy,
  type OnModuleInit,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import type { Connection, mongo } from 'mongoose';
import {
  endOnSignals,
  JobsAdminModule,
  JobsEvents,
  JobsModule,
  JobsWorkersModule,
  JobTargetsRegistry,
  KafkaModule,
  SchedulesModule,
  SchedulesService,
  SideEffectService,
} from '../../../src/index.js';
import { answeredWithin } from '../../../src/common/utils/answers.js';
import { JobsAdminService } from '../../../src/jobs/admin/jobs_admin.service.js';
import { TargetStates } from '../../../src/jobs/admin/target_states.service.js';
import { ClaimKeeper } from '../../../src/jobs/lanes/claim_keeper.js';
import { PartitionLeaseService } from '../../../src/jobs/lanes/partition_lease.service.js';
import { Ledger } from './ledger.js';
import { commandMs, engineOptions, type FromPod, type PodSettings, type ToPod } from './pod_settings.js';
import { BenchProducer } from './pod_producer.js';
import { BenchTargets, type Surroundings } from './pod_targets.js';

/** A pod that cannot reach its database gives up soon, so that cuts are felt within a scenario. */
const DRIVER = {
  maxPoolSize: 10,
  serverSelectionTimeoutMS: 1_000,
  connectTimeoutMS: 1_000,
  socketTimeoutMS: 2_000,
  heartbeatFrequencyMS: 500,
};

const PATIENT = { maxPoolSize: DRIVER.maxPoolSize };

const SETTINGS = Symbol('settings');
const LEDGER = Symbol('ledger');

@Injectable()
class Business implements OnModuleInit, OnModuleDestroy {
  readonly pod: Surroundings;
  readonly producer: BenchProducer;

  constructor(
    @Inject(SETTINGS) settings: PodSettings,
    @Inject(LEDGER) ledger: Ledger,
    @Inject(getConnectionToken()) connection: Connection,
    @Inject(SideEffectService) sideEffect: SideEffectService,
    @Inject(PartitionLeaseService) leases: PartitionLeaseService,
    @Inject(ClaimKeeper) keeper: ClaimKeeper,
    @Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry,
    @Inject(SchedulesService) private readonly schedules: SchedulesService,
    @Inject(JobsEvents) events: JobsEvents,
  ) {
    const collection = (name: string): mongo.Collection =>
      answeredWithin(commandMs(settings), connection.db!.collection(name));
    this.pod = { settings, ledger, connection, collection, sideEffect, leases, keeper };
    this.producer = new BenchProducer(this.pod);
    events.on((event) => {
      if (event.type === 'dead') ledger.write({ what: 'dead', id: event.row.id, reason: event.reason });
      if (event.type === 'reclaimed') ledger.write({ what: 'reclaimed', rows: event.again + event.dead });
      if (event.type === 'lossy_dropped') {
        const { target, count, reason } = event;
        ledger.write({ what: 'dropped', target, count, reason });
      }
    });
  }

  onModuleInit(): void {
    const targets = new BenchTargets(this.pod);
    for (const target of targets.all()) this.registry.register(target);
    const { version, schedules = [] } = this.pod.settings;
    const usual = version >= 2 ? ['tick', 'new_tick'] : ['tick'];
    const all = [...usual.map((code) => ({ code, cron: '*/2 * * * * *', timezone: 'UTC' })), ...schedules];
    for (const schedule of all) {
      this.schedules.declare({
        ...schedule,
        missed_slot_policy: 'run_once',
        handler: ({ slot, job }) => targets.slot(job, slot),
      });
    }
  }

  /** A clean stop cuts off no business. */
  onModuleDestroy(): Promise<void> {
    return this.producer.stop();
  }
}

function host(settings: PodSettings, ledger: Ledger): new () => object {
  const kafka: DynamicModule[] = settings.kafka
    ? [KafkaModule.forRoot({ ...settings.kafka, connect_timeout_ms: 200, target_topics: 'once,again:at_least_once' })]
    : [];

  @Module({
    imports: [
      MongooseModule.forRoot(settings.uri, { dbName: settings.db, ...(settings.patient ? PATIENT : DRIVER) }),
      JobsModule.forRoot(engineOptions(settings)),
      SchedulesModule.forRoot({ timezone: 'UTC' }),
      JobsAdminModule,
      ...kafka,
      JobsWorkersModule,
    ],
    providers: [{ provide: SETTINGS, useValue: settings }, { provide: LEDGER, useValue: ledger }, Business],
  })
  class Pod {}
  return Pod;
}

export async function runPod(settings: PodSettings): Promise<void> {
  const ledger = new Ledger(settings.folder, settings.name);
  for (const kind of ['unhandledRejection', 'uncaughtException'] as const) {
    process.on(kind, (error: unknown) => {
      ledger.write({ what: 'trouble', text: `${kind}: ${(error as Error | null)?.stack ?? String(error)}` });
    });
  }
  process.on('disconnect', () => process.exit(7)); // whoever started it is gone
  const app = await NestFactory.createApplicationContext(host(settings, ledger), {
    logger: ['warn', 'error'],
    abortOnError: false,
  });
  const { producer } = app.get(Business);
  const send = (message: FromPod): void => void process.send?.(message);

  const administer = ({ action, subject }: Extract<ToPod, { do: 'admin' }>): Promise<unknown> => {
    const wish = { actor: 'bench', reason: 'a fault test' };
    if (action === 'pause' || action === 'resume') return app.get(TargetStates)[action]({ target: subject, ...wish });
    return app.get(JobsAdminService)[action]({ id: subject, ...wish });
  };
  const obey = async (message: ToPod): Promise<void> => {
    if (message.do === 'produce') producer.set(message.per_s);
    if (message.do === 'block') block(message.ms);
    if (message.do !== 'admin' && message.do !== 'enqueue') return;
    try {
      await (message.do === 'enqueue' ? producer.enqueue(message.items) : administer(message));
      send({ is: 'done', call: message.call });
    } catch (error) {
      send({ is: 'done', call: message.call, error: (error as Error).message });
    }
  };
  process.on('message', (message: ToPod) => void obey(message));
  process.on('SIGTERM', () => void producer.stop());
  endOnSignals(app);
  process.on('exit', (code) => void (code === 0 && ledger.write({ what: 'stopped' })));
  producer.start();
  send({ is: 'ready' });
}

function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}
