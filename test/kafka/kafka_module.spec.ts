/** The way of a job through the whole of it: one Nest application, one database, one broker. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { MongooseModule, getConnectionToken } from '@nestjs/mongoose';
import { Test, type TestingModule } from '@nestjs/testing';
import { Kafka, logLevel, type Admin } from 'kafkajs';
import type { Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { JobsModule } from '../../src/jobs/jobs.module.js';
import { JobsWorkersModule } from '../../src/jobs/jobs_workers.module.js';
import { FastLaneWorker } from '../../src/jobs/lanes/fast_lane.worker.js';
import { PartitionLeaseService } from '../../src/jobs/lanes/partition_lease.service.js';
import { SideEffectService } from '../../src/jobs/side_effect.service.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../../src/jobs/store/collections.js';
import { KafkaModule } from '../../src/kafka/kafka.module.js';
import type { KafkaSettings } from '../../src/kafka/kafka.options.js';
import { sizeOfTopic } from './topic_offsets.js';

describe('an application with the Kafka module', () => {
  const id = randomUUID().slice(0, 8);
  const topic = `orders.${id}`;
  const dbName = `t_kafka_${id}`;
  const settings: KafkaSettings = { enabled: true };
  let app: TestingModule;
  let admin: Admin;

  beforeAll(async () => {
    const brokers = process.env['KAFKA_BROKERS']!.split(',');
    admin = new Kafka({ brokers, logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    await admin.createTopics({
      topics: [topic, `${topic}.all`].map((name) => ({ topic: name })),
      waitForLeaders: false,
    });
    for (const name of [topic, `${topic}.all`]) await sizeOf(name);
    const topics = [
      { event: 'order_changed', default_topic: topic },
      { event: 'order_logged', default_topic: `${topic}.all`, delivery_mode: 'at_least_once' as const },
    ];
    app = await Test.createTestingModule({
      imports: [
        MongooseModule.forRoot(process.env['MONGO_URI']!, { dbName }),
        JobsModule.forRoot({ workers: 'manual', partitions: 2 }),
        KafkaModule.forRoot({ brokers, topics, target_topics: '', settings: () => settings }),
        JobsWorkersModule,
      ],
    }).compile();
    await app.init();
    await app.get(PartitionLeaseService).heartbeat();
  });

  afterAll(async () => {
    await app.get<Connection>(getConnectionToken()).dropDatabase();
    await app.close();
    await admin.deleteTopics({ topics: [topic, `${topic}.all`] });
    await admin.disconnect();
  });

  const left = (): Promise<number> => app.get<JobsCollections>(JOBS_COLLECTIONS).jobs.countDocuments();
  const enqueue = (target: string, code: string, key: string): Promise<unknown> =>
    app.get(SideEffectService).enqueue(target, { key }, { code, key, dedupe_key: `${code}:${key}` }, null);
  const sizeOf = (name: string): Promise<number> => sizeOfTopic(admin, name);
  async function drain(): Promise<void> {
    for (let round = 0; round < 20; round++) if ((await app.get(FastLaneWorker).runOnce()) === 0) return;
  }

  it('delivers what was enqueued at most once, and leaves no row', async () => {
    for (const key of ['A', 'B', 'C']) await enqueue(`kafka:${topic}`, 'order_changed', key);
    await drain();
    expect([await left(), await sizeOf(topic)]).toEqual([0, 3]);
  });

  it('keeps the jobs and their attempts while Kafka is disabled', async () => {
    settings.enabled = false;
    await enqueue(`kafka:${topic}`, 'order_changed', 'D');
    await drain();
    const [row] = await app.get<JobsCollections>(JOBS_COLLECTIONS).jobs.find().toArray();
    expect(row).toMatchObject({ status: 'PENDING', attempts: 0 });
    expect(await sizeOf(topic)).toBe(3);
    settings.enabled = true;
    await app.get<JobsCollections>(JOBS_COLLECTIONS).jobs.deleteMany({});
  });

  it('delivers what was enqueued at least once, and leaves no row', async () => {
    for (const key of ['A', 'B', 'C']) await enqueue(`kafka:${topic}.all`, 'order_logged', key);
    await drain();
    expect([await left(), await sizeOf(`${topic}.all`)]).toEqual([0, 3]);
  });
});
