/**
 * Pods of a test: each a real Nest application context with its own connection to one real database, on a clock the
 * test moves, its loops in `manual` mode. A file opens one `TestDatabase`, and drops it at the end.
 */
import type { ModuleMetadata } from '@nestjs/common';
import { MongooseModule, getConnectionToken } from '@nestjs/mongoose';
import { Test, type TestingModule } from '@nestjs/testing';
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { CLOCK, type Clock } from '../../src/common/ports/clock.js';
import { RANDOM } from '../../src/common/ports/random.js';
import { JobsEvents, type JobsEvent } from '../../src/jobs/jobs.events.js';
import { JobsModule } from '../../src/jobs/jobs.module.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import { JobsWorkersModule } from '../../src/jobs/jobs_workers.module.js';
import { ClaimKeeper } from '../../src/jobs/lanes/claim_keeper.js';
import { ClaimSweeper } from '../../src/jobs/lanes/claim_sweeper.js';
import { LongLaneWorker } from '../../src/jobs/lanes/long_lane.worker.js';
import { FastLaneWorker } from '../../src/jobs/lanes/fast_lane.worker.js';
import { PartitionLeaseService } from '../../src/jobs/lanes/partition_lease.service.js';
import { TargetPause } from '../../src/jobs/lanes/target_pause.js';
import { SideEffectService } from '../../src/jobs/side_effect.service.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../../src/jobs/store/collections.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from './fake_clock.js';

/** Log texts are tested through their events. */
const SILENT = { log: () => undefined, error: () => undefined, warn: () => undefined };

export class TestDatabase {
  readonly name = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
  readonly uri = process.env['MONGO_URI']!;
  private readonly pods: TestPod[] = [];

  async pod(
    options: JobsModuleOptions = {},
    targets: JobTargetOptions[] = [],
    clock: Clock = new FakeClock(),
    /** What the host has beside the engine. */
    { imports = [], providers = [] }: Pick<ModuleMetadata, 'imports' | 'providers'> = {},
  ): Promise<TestPod> {
    const module = await Test.createTestingModule({
      providers,
      imports: [
        MongooseModule.forRoot(this.uri, { dbName: this.name, monitorCommands: true, maxPoolSize: 20 }),
        JobsModule.forRoot({ workers: 'manual', partitions: 4, ...options }),
        ...imports,
        JobsWorkersModule,
      ],
    })
      .overrideProvider(CLOCK)
      .useValue(clock)
      .overrideProvider(RANDOM)
      .useValue(() => 0)
      .setLogger(SILENT)
      .compile();
    for (const target of targets) module.get(JobTargetsRegistry).register(target);
    await module.init();
    const pod = new TestPod(module, clock);
    this.pods.push(pod);
    return pod;
  }

  /** Closes the pods; their collections are emptied for the next test. */
  async reset(): Promise<void> {
    for (const pod of this.pods.splice(0)) await pod.close();
    const connection = await mongoose.createConnection(this.uri, { dbName: this.name }).asPromise();
    for (const { name } of await connection.listCollections()) {
      await connection.collection(name).deleteMany({});
    }
    await connection.close();
  }

  async drop(): Promise<void> {
    await this.reset();
    const connection = await mongoose.createConnection(this.uri, { dbName: this.name }).asPromise();
    await connection.dropDatabase();
    await connection.close();
  }
}

export class TestPod {
  readonly connection: Connection;
  readonly collections: JobsCollections;
  readonly sideEffect: SideEffectService;
  readonly leases: PartitionLeaseService;
  readonly lane: FastLaneWorker;
  readonly longLane: LongLaneWorker;
  readonly pause: TargetPause;
  readonly keeper: ClaimKeeper;
  readonly sweeper: ClaimSweeper;
  readonly events: JobsEvent[] = [];
  private closed = false;

  constructor(
    readonly module: TestingModule,
    private readonly clock: Clock,
  ) {
    this.connection = module.get(getConnectionToken());
    this.collections = module.get(JOBS_COLLECTIONS);
    this.sideEffect = module.get(SideEffectService);
    this.leases = module.get(PartitionLeaseService);
    this.lane = module.get(FastLaneWorker);
    this.longLane = module.get(LongLaneWorker);
    this.pause = module.get(TargetPause);
    this.keeper = module.get(ClaimKeeper);
    this.sweeper = module.get(ClaimSweeper);
    module.get(JobsEvents).on((event) => this.events.push(event));
  }

  get jobs(): JobsCollections['jobs'] {
    return this.collections.jobs;
  }

  eventsOf<T extends JobsEvent['type']>(type: T): Extract<JobsEvent, { type: T }>[] {
    return this.events.filter((event) => event.type === type) as Extract<JobsEvent, { type: T }>[];
  }

  /** Rounds of both lanes until nothing is due. */
  async drain(rounds = 100): Promise<void> {
    for (let round = 0; round < rounds; round++) {
      const worked = (await this.lane.runOnce()) + (await this.longLane.runOnce());
      if (worked === 0) return;
    }
    throw new Error('the lanes did not run dry');
  }

  /** Names of the commands that `work` sent, without the driver's own. */
  async commandsOf(work: () => Promise<unknown>): Promise<string[]> {
    const names: string[] = [];
    const count = ({ commandName }: { commandName: string }): void => void names.push(commandName);
    const client = this.connection.getClient();
    client.on('commandStarted', count);
    try {
      await work();
    } finally {
      client.off('commandStarted', count);
    }
    return names.filter((name) => !['ping', 'endSessions', 'hello'].includes(name));
  }

  /** The process is gone: nothing is released, nothing written. */
  async die(): Promise<void> {
    this.closed = true;
    await this.connection.close(true);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    this.closed = true;
    await this.module.close();
  }

  now(): Date {
    return this.clock.now();
  }
}
