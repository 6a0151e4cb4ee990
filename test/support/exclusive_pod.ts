/**
 * One pod as a process, for test/concurrency/exclusive_codes.spec.ts. Its handler takes a lock of its own per code while it
 * runs, so that two runs of one code at once are seen where they would hurt: in the handler. Environment: `MONGO_URI`, `DB`.
 */
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import type { Connection } from 'mongoose';
import { JobsModule, JobsWorkersModule, JobTargetsRegistry } from '../../src/index.js';

@Module({
  imports: [
    MongooseModule.forRoot(process.env['MONGO_URI']!, { dbName: process.env['DB']! }),
    JobsModule.forRoot({ partitions: 4, long_lane: { idle_poll_ms: [20] } }),
    JobsWorkersModule,
  ],
})
class Pod {}

const app = await NestFactory.createApplicationContext(Pod, { logger: ['error'] });
const connection = app.get<Connection>(getConnectionToken());
const locks = connection.collection<{ _id: string }>('locks');
const ledger = connection.collection('ledger');

app.get(JobTargetsRegistry).register({
  name: 'test:exclusive',
  lane: 'long',
  exclusive: true,
  handler: async (job) => {
    const alone = await locks.insertOne({ _id: job.code }).then(
      () => true,
      () => false,
    );
    await ledger.insertOne({ job: job.id, code: job.code, alone, pod: process.pid });
    if (alone) await locks.deleteOne({ _id: job.code });
  },
});
app.enableShutdownHooks();
process.stdout.write('ready\n');
