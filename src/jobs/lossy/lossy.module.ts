/** Lossy targets: jobs that may be lost, handed to Redis after the commit. Part of `JobsModule`; opens no connection by itself. */
import { BullModule, type BullModuleOptions } from '@nestjs/bull';
import { Module } from '@nestjs/common';
import { LossyCommits } from './lossy_commits.js';
import { LossyConnections } from './lossy_connections.js';
import { LossyDrops } from './lossy_drops.js';
import { LOSSY_QUEUE } from './lossy_job.js';
import { LossyProcessor } from './lossy.processor.js';
import { LossyQueue } from './lossy.queue.js';

/** Bull's only; a host's `BullModule.forRoot()` would otherwise be mixed in, so every option it may set is set here. */
function bullOptions(connections: LossyConnections): BullModuleOptions {
  const options = {
    createClient: connections.open.bind(connections),
    url: undefined,
    prefix: 'bull',
    limiter: undefined,
    metrics: undefined,
    defaultJobOptions: {},
    // One try: a job whose pod died is not started again, but dropped.
    settings: { maxStalledCount: 0 },
    // The check would open a connection although nothing is lossy.
    skipVersionCheck: true,
  };
  return options as BullModuleOptions;
}

@Module({ providers: [LossyConnections], exports: [LossyConnections] })
class LossyConnectionsModule {}

@Module({
  imports: [
    LossyConnectionsModule,
    BullModule.registerQueueAsync({
      name: LOSSY_QUEUE,
      imports: [LossyConnectionsModule],
      inject: [LossyConnections],
      useFactory: bullOptions,
    }),
  ],
  providers: [LossyDrops, LossyQueue, LossyCommits, LossyProcessor],
  exports: [LossyQueue, LossyCommits, LossyProcessor],
})
export class LossyModule {}
