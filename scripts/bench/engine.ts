// Pods of the product itself: Nest application contexts on a database of their own, their loops on the real clock.
//
// A pod of a drain is booted in `manual` mode and lives for all rounds (connections, leases and compiled code stay warm,
// as in a service). For each round its lanes' workers are made anew and started, so that nothing runs while the other
// sides have their turn. Everything else (leases, marks, outcomes, pauses, Kafka) is the pod's own.
import { Inject, Injectable, Module, type DynamicModule, type INestApplicationContext } from '@nestjs/common';
import { ModuleRef, NestFactory } from '@nestjs/core';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import type { Connection } from 'mongoose';
import { CLOCK, type Clock } from '../../src/common/ports/clock.js';
import { RunLoop } from '../../src/common/run_loop.js';
import { JobsEvents, type JobsEvent } from '../../src/jobs/jobs.events.js';
import { JobsModule } from '../../src/jobs/jobs.module.js';
import { JOBS_CONFIG, type JobsConfig, type JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import { JobsWorkersModule } from '../../src/jobs/jobs_workers.module.js';
import { FastLaneWorker } from '../../src/jobs/lanes/fast_lane.worker.js';
import { LongLaneWorker } from '../../src/jobs/lanes/long_lane.worker.js';
import { PartitionLeaseService } from '../../src/jobs/lanes/partition_lease.service.js';
import { SideEffectService } from '../../src/jobs/side_effect.service.js';
import { ensureIndexes } from '../../src/jobs/store/boot.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../../src/jobs/store/collections.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { KafkaModule } from '../../src/kafka/kafka.module.js';
import { KafkaProducer } from '../../src/kafka/kafka.producer.js';
import type { KafkaModuleOptions } from '../../src/kafka/kafka.options.js';
import { CommandCount } from './command_count.js';

export interface PodOptions {
  uri: string;
  database: string;
  jobs?: JobsModuleOptions;
  targets?: (app: ModuleRef) => JobTargetOptions[];
  kafka?: KafkaModuleOptions;
  imports?: DynamicModule[];
}

const TARGETS = Symbol('bench.targets');
const SHUTDOWN_MS = 5_000;

@Injectable()
class BenchTargets {
  constructor(
    @Inject(TARGETS) private readonly targets: (app: ModuleRef) => JobTargetOptions[],
    @Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry,
    @Inject(ModuleRef) private readonly app: ModuleRef,
  ) {}

  onModuleInit(): void {
    for (const target of this.targets(this.app)) this.registry.register(target);
  }
}

function hostOf({ uri, database, jobs, targets = () => [], kafka, imports = [] }: PodOptions): DynamicModule {
  @Module({})
  class BenchHost {}
  return {
    module: BenchHost,
    imports: [
      MongooseModule.forRoot(uri, { dbName: database, monitorCommands: true }),
      JobsModule.forRoot({ workers: 'manual', redis: { url: '' }, shutdown_grace_ms: SHUTDOWN_MS, ...jobs }),
      ...(kafka ? [KafkaModule.forRoot(kafka)] : []),
      ...imports,
      JobsWorkersModule,
    ],
    providers: [{ provide: TARGETS, useValue: targets }, BenchTargets],
  };
}

export class EnginePod {
  readonly connection: Connection;
  readonly collections: JobsCollections;
  readonly config: JobsConfig;
  readonly events: JobsEvents;
  readonly sideEffect: SideEffectService;
  readonly commands: CommandCount;
  /** Calls of the pod's Kafka producer; each is one call of the client. */
  kafkaSends = 0;
  private readonly clock: Clock;
  private readonly leases: PartitionLeaseService;
  private readonly heartbeat: RunLoop;

  private constructor(readonly app: INestApplicationContext) {
    this.connection = app.get(getConnectionToken());
    this.collections = app.get(JOBS_COLLECTIONS);
    this.config = app.get(JOBS_CONFIG);
    this.events = app.get(JobsEvents);
    this.sideEffect = app.get(SideEffectService);
    this.clock = app.get(CLOCK);
    this.leases = app.get(PartitionLeaseService);
    this.commands = new CommandCount(this.connection.getClient());
    this.events.on(failLoudly);
    this.heartbeat = new RunLoop({
      name: 'heartbeat',
      clock: this.clock,
      step: async () => {
        await this.leases.heartbeat();
        return this.config.lease.heartbeat_ms;
      },
      errorDelayMs: 1_000,
      onError: (_loop, error) => console.error('heartbeat', error),
    });
  }

  static async boot(options: PodOptions): Promise<EnginePod> {
    const app = await NestFactory.createApplicationContext(hostOf(options), { logger: false, abortOnError: false });
    const pod = new EnginePod(app);
    if (options.kafka) pod.countSends(app.get(KafkaProducer, { strict: false }));
    return pod;
  }

  /** Takes partitions until it has `count` of them, and keeps them. Not for pods whose workers are on. */
  async own(count: number): Promise<void> {
    const enough = this.until((event) => event.type === 'partitions_taken' && this.leases.readable().length >= count);
    this.heartbeat.start();
    await enough;
  }

  /** One heartbeat at once, and more from here on: so it is known, and knows the others. */
  async beat(): Promise<void> {
    await this.leases.heartbeat();
    this.heartbeat.start();
  }

  /** Empty collections with fresh indexes, so that no round pays for what the last one left behind. */
  async empty(): Promise<void> {
    await this.collections.jobs.drop().catch(() => false);
    await ensureIndexes(this.collections);
  }

  /** Resolves at the first event for which `match` is true. */
  until(match: (event: JobsEvent) => boolean): Promise<void> {
    return new Promise((resolve) => {
      const off = this.events.on((event) => {
        if (!match(event)) return;
        off();
        resolve();
      });
    });
  }

  /** Resolves when `count` more rows have ended with success, their outcome written. A row that goes DEAD ends the bench. */
  ended(count: number): Promise<void> {
    return new Promise((resolve, reject) => {
      let left = count;
      const off = this.events.on((event) => {
        if (event.type === 'dead') reject(new Error(`a row went DEAD: ${event.reason}`));
        if (event.type !== 'run_ended' || event.result !== 'success' || --left > 0) return;
        off();
        resolve();
      });
    });
  }

  /** A fast lane of its own, started; every partition is hinted, as the commits of its backlog would have done. */
  async startFastLane(hint: { target: string; partitions: number } | 'cold'): Promise<FastLaneWorker> {
    const lane = await this.app.get(ModuleRef).create(FastLaneWorker);
    lane.start();
    if (hint !== 'cold') for (let p = 0; p < hint.partitions; p++) lane.hint(hint.target, p);
    return lane;
  }

  async startLongLane(hint: string): Promise<LongLaneWorker> {
    const lane = await this.app.get(ModuleRef).create(LongLaneWorker);
    lane.start();
    lane.hint(hint);
    return lane;
  }

  private countSends(producer: KafkaProducer): void {
    const send = producer.send.bind(producer);
    producer.send = (records) => {
      this.kafkaSends++;
      return send(records);
    };
    const sendByPartition = producer.sendByPartition.bind(producer);
    producer.sendByPartition = async (records) => {
      const sent = await sendByPartition(records);
      this.kafkaSends += sent.length;
      return sent;
    };
  }

  async close(): Promise<void> {
    await this.heartbeat.stop();
    this.commands.stop();
    await this.app.close();
  }
}

export const STOP_MS = SHUTDOWN_MS;

/** A bench whose product fails quietly would measure nothing. */
function failLoudly(event: JobsEvent): void {
  if (event.type === 'round_failed' || event.type === 'loop_failed' || event.type === 'outcome_kept') {
    console.error(event.type, event.error);
  }
}
