/**
 * The boot, on databases in every state: away, empty with many pods at once, of the previous version, with indexes that
 * are missing, conflicting or cannot be built, prepared by a pod that was configured otherwise.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { Global, Module, type INestApplicationContext, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import {
  BootError,
  inTransaction,
  JobsEvents,
  JobsModule,
  JobsWorkersModule,
  JobTargetsRegistry,
  SchedulesModule,
  SideEffectService,
  type EnqueueResult,
  type JobsModuleOptions,
  type Tx,
} from '../../src/index.js';
import { DatabaseClock } from '../../src/common/ports/clock.js';
import { isDatabaseAway, untilThere } from '../../src/common/utils/database_away.js';
import { leaveConnection } from '../../src/jobs/boot.js';
import { partitionOf } from '../../src/jobs/policy/partition.js';
import { JOB_INDEXES } from '../../src/jobs/store/jobs.schema.js';
import { Host } from '../support/host/host.js';
import { TcpProxy } from '../support/tcp_proxy.js';
import { waitFor } from '../support/wait_for.js';

const PARTITIONS = 8;
let admin: Connection;
let db: string;
let connection: Connection;
const opened: { close(): Promise<unknown> }[] = [];

function hostModule(options: JobsModuleOptions = {}, uri = process.env['MONGO_URI']!, mongooseOptions = {}): Type {
  @Module({
    imports: [
      MongooseModule.forRoot(uri, { dbName: db, retryAttempts: 1, ...mongooseOptions }),
      JobsModule.forRoot({ partitions: PARTITIONS, workers: 'manual', ...options }),
      JobsWorkersModule,
    ],
  })
  class HostModule {}
  return HostModule;
}

async function boot(module: Type): Promise<INestApplicationContext> {
  const app = await NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
  opened.push(app);
  return app;
}

const indexNames = async (): Promise<string[]> =>
  (await connection.collection('jobs').listIndexes().toArray()).map(({ name }) => name as string).sort();
const mongoPort = (): number => Number(/:(\d+)/.exec(process.env['MONGO_URI']!.replace('mongodb:', ''))![1]);
const through = (proxy: TcpProxy): string => `mongodb://127.0.0.1:${proxy.port}/?directConnection=true`;

async function openProxy(network: 'pass' | 'refuse'): Promise<TcpProxy> {
  const proxy = await TcpProxy.open(mongoPort(), network);
  opened.push(proxy);
  return proxy;
}

beforeAll(async () => {
  admin = await mongoose.createConnection(process.env['MONGO_URI']!).asPromise();
});
function openDatabase(): void {
  db = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
  connection = admin.useDb(db, { useCache: true });
}
afterEach(async () => {
  for (const each of opened.splice(0).reverse()) await each.close();
  await connection.dropDatabase();
});
afterAll(() => admin.close());

describe('a boot while the database is away', () => {
  it('says so, tries again, and serves when it is back: nobody has to start the pod again', async () => {
    openDatabase();
    const proxy = await openProxy('refuse');
    const host = Host.start({
      db,
      uri: through(proxy),
      mongoose: { serverSelectionTimeoutMS: 300, retryDelay: 200, retryAttempts: 300 },
    });
    opened.push({ close: () => host.kill() });
    await host.child.said('Unable to connect to the database. Retrying (3)');
    proxy.become('pass');
    const answer = await fetch(`${await host.up()}/jobs`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ target: 'fast:at_least_once', dedupe_key: 'one' }),
    });
    expect(answer.status).toBe(201);
    await waitFor('the row run', () => host.said('ended').length === 1, 20_000);
    expect(host.said('UNHANDLED')).toEqual([]);
  }, 60_000);

  it('goes away in the middle of it: says so, waits, and goes on', async () => {
    openDatabase();
    const proxy = await openProxy('pass');
    const lost = proxy.becomeAt('createIndexes\0', 'refuse');
    const host = Host.start({ db, uri: through(proxy), mongoose: { serverSelectionTimeoutMS: 300 } });
    opened.push({ close: () => host.kill() });
    await lost;
    await host.child.said('boot waits for the database');
    proxy.become('pass');
    await host.up();
    expect(await indexNames()).toEqual(expect.arrayContaining(JOB_INDEXES.map(({ name }) => name)));
    expect(host.said('UNHANDLED')).toEqual([]);
  }, 60_000);

  it.each([
    ['indexes of the schedules are made', 'createIndexes\0\x0a\0\0\0schedules\0'],
    ['schedules are synced', 'insert\0\x0a\0\0\0schedules\0'],
  ])(
    'goes away while the %s: says so, waits, and goes on',
    async (_, command) => {
      openDatabase();
      const proxy = await openProxy('pass');
      const lost = proxy.becomeAt(command, 'refuse');
      const mongooseOptions = { serverSelectionTimeoutMS: 300 };
      const env = { SCHEDULE: '0 0 * * *' };
      const host = Host.start({ db, uri: through(proxy), mongoose: mongooseOptions, env });
      opened.push({ close: () => host.kill() });
      await lost;
      await host.child.said('boot waits for the database');
      proxy.become('pass');
      await host.up();
      expect(await connection.collection('schedules').countDocuments({ code: 'nothing' })).toBe(1);
      expect(host.said('UNHANDLED')).toEqual([]);
    },
    60_000,
  );

  it('of schedules, that failed, may be tried again on the same connection', async () => {
    openDatabase();
    const shared = await mongoose.createConnection(process.env['MONGO_URI']!, { dbName: db }).asPromise();
    opened.push(shared);
    @Global()
    @Module({ providers: [{ provide: getConnectionToken(), useValue: shared }], exports: [getConnectionToken()] })
    class ConnectionModule {}
    @Module({
      imports: [
        ConnectionModule,
        JobsModule.forRoot({ partitions: PARTITIONS, workers: 'manual' }),
        SchedulesModule.forRoot(),
        JobsWorkersModule,
      ],
    })
    class HostModule {}
    await connection.collection('schedules').createIndex({ next_run_at: 1 }, { name: 'code' });
    await expect(boot(HostModule)).rejects.toMatchObject({ code: 'index_conflict' });
    await connection.collection('schedules').dropIndexes();
    leaveConnection(shared); // what of the engine had come up
    await boot(HostModule);
  });

  it('for longer than boot_wait_ms: the boot fails with the error of the database', async () => {
    openDatabase();
    const proxy = await openProxy('pass');
    const lost = proxy.becomeAt('createIndexes\0', 'refuse');
    const failed = boot(hostModule({ boot_wait_ms: 1_500 }, through(proxy), { serverSelectionTimeoutMS: 300 })).then(
      () => 'booted',
      (error: unknown) => error,
    );
    await lost;
    const error = await failed;
    expect(isDatabaseAway(error)).toBe(true);
    expect(error).not.toBeInstanceOf(BootError);
  }, 60_000);

  it('waits for no other error, and not beyond its time', async () => {
    openDatabase();
    const clock = new DatabaseClock(async () => new Date());
    const told: number[] = [];
    const patience = { clock, forMs: 100, everyMs: 20, onAway: (_: unknown, left: number) => void told.push(left) };
    const conflict = Object.assign(new Error('conflict'), { code: 85 });
    await expect(untilThere(() => Promise.reject(conflict), patience)).rejects.toBe(conflict);
    expect(told).toEqual([]);
    const away = Object.assign(new Error('stepped down'), { code: 10107 });
    await expect(untilThere(() => Promise.reject(away), patience)).rejects.toBe(away);
    expect(told.length).toBeGreaterThanOrEqual(1);
    expect(told.length).toBeLessThanOrEqual(5);
  });
});

describe('eight pods at once on an empty database', () => {
  it('all come up, and there is one of everything', async () => {
    openDatabase();
    const apps = await Promise.all(Array.from({ length: 8 }, () => boot(hostModule())));
    expect(apps).toHaveLength(8);
    expect(await indexNames()).toEqual(['_id_', ...JOB_INDEXES.map(({ name }) => name)].sort());
    const rows = await connection.collection('job_partitions').find().toArray();
    expect(rows.map((row) => row['partition'] as number).sort((a, b) => a - b)).toEqual([...Array(PARTITIONS).keys()]);
    expect(await connection.collection('job_meta').countDocuments()).toBe(1);
  }, 60_000);
});

describe('a boot on the database of the previous version', () => {
  const PENDING_FAST = { status: 'PENDING', lane: 'fast' };

  /** As the version before the long lane left it: five indexes, partitions without `rev`, rows that wait. */
  async function leaveBehind(): Promise<void> {
    const jobs = connection.collection('jobs');
    await jobs.createIndexes([
      {
        name: 'due_fast',
        key: { target: 1, partition: 1, next_run_at: 1, _id: 1, order_key: 1 },
        partialFilterExpression: PENDING_FAST,
      },
      {
        name: 'in_order',
        key: { target: 1, partition: 1, order_key: 1, version: 1, _id: 1 },
        partialFilterExpression: PENDING_FAST,
      },
      { name: 'dedupe', key: { dedupe_key: 1 }, unique: true },
      { name: 'admin', key: { status: 1, _id: -1 } },
    ]);
    const partitions = connection.collection('job_partitions');
    await partitions.createIndexes([{ name: 'partition', key: { partition: 1 }, unique: true }]);
    await partitions.insertMany(
      Array.from({ length: PARTITIONS }, (_, partition) => ({
        partition,
        owner: null,
        lease_until: null,
        inflight: [],
      })),
    );
    await connection
      .collection<{ _id: string; partitions: number }>('job_meta')
      .insertOne({ _id: 'engine', partitions: PARTITIONS });
    const at = new Date(Date.now() - 60_000);
    const row = (version: number, status: string) => ({
      code: 'old',
      target: 'old:target',
      lane: 'fast',
      key: 'K',
      order_key: 'K',
      partition: partitionOf('K', PARTITIONS),
      version,
      payload: { version },
      dedupe_key: `old${version}`,
      status,
      attempts: 0,
      crashes: 0,
      priority: 2,
      run_at: at,
      next_run_at: at,
      bytes: 200,
      created_at: at,
      updated_at: at,
    });
    await jobs.insertMany([row(2, 'PENDING'), row(1, 'PENDING'), { ...row(0, 'DEAD'), closed_at: at }]);
  }

  it('adds what is new, runs the rows that waited in their order, and leaves DEAD alone', async () => {
    openDatabase();
    await leaveBehind();
    const app = await boot(hostModule({ workers: 'on' }));
    const seen: number[] = [];
    app.get(JobTargetsRegistry).register({
      name: 'old:target',
      lane: 'fast',
      handler: async (job) => void seen.push(job.version),
    });
    await app.get(SideEffectService).enqueue('old:target', 1, { key: 'K', version: 3 }); // a hint, for the test's speed
    await waitFor('the old rows and the new one', () => seen.length === 3, 20_000);
    expect(seen).toEqual([1, 2, 3]);
    // Old pods still look for known keys by `dedupe`, so it stays.
    expect(await indexNames()).toEqual(['_id_', 'dedupe', ...JOB_INDEXES.map(({ name }) => name)].sort());
    await waitFor('outcomes', async () => (await connection.collection('jobs').countDocuments()) === 1);
    expect(await connection.collection('jobs').findOne()).toMatchObject({ status: 'DEAD', dedupe_key: 'old0' });
    const replay = (tx?: Tx): Promise<EnqueueResult> =>
      app.get(SideEffectService).enqueue('old:target', 0, { dedupe_key: 'old0' }, tx);
    expect(
      [await replay(), await inTransaction(app.get(getConnectionToken()), replay)].map(({ inserted }) => inserted),
    ).toEqual([false, false]);
  }, 60_000);
});

describe('a boot that cannot trust the database', () => {
  /** Nothing of the engine runs, and the message says what to do. */
  async function expectRefused(
    error: { code: string; message: RegExp },
    options: JobsModuleOptions = {},
  ): Promise<void> {
    const failed = await boot(hostModule({ workers: 'on', ...options })).catch((thrown: unknown) => thrown);
    expect(failed).toBeInstanceOf(BootError);
    expect(failed).toMatchObject({ code: error.code });
    expect((failed as Error).message).toMatch(error.message);
    expect(await connection.collection('job_workers').countDocuments()).toBe(0);
    expect(await connection.collection('job_partitions').countDocuments({ owner: { $ne: null } })).toBe(0);
  }

  it('an index of our name with other keys: it is named, with what to do', async () => {
    openDatabase();
    await connection.collection('jobs').createIndex({ target: 1 }, { name: 'due_fast' });
    await expectRefused({ code: 'index_conflict', message: /jobs: index due_fast: .*Drop it/ });
  });

  it('a unique index that is not unique', async () => {
    openDatabase();
    await connection.collection('jobs').createIndex({ dedupe_key: 1 }, { name: 'dedupe_given' });
    await expectRefused({
      code: 'index_conflict',
      message: /jobs: index dedupe_given: unique is false, expected true/,
    });
  });

  it('our keys under another name', async () => {
    openDatabase();
    await connection.collection('jobs').createIndex({ status: 1, _id: -1 }, { name: 'somebody_else' });
    await expectRefused({
      code: 'index_conflict',
      message: /jobs: index admin: its keys are taken by index somebody_else\. Drop it/,
    });
  });

  it('rows that break a unique index: it cannot be built, and the rows are told', async () => {
    openDatabase();
    await connection.collection('jobs').insertMany([{ dedupe_key: 'twice' }, { dedupe_key: 'twice' }]);
    await expectRefused({
      code: 'index_duplicates',
      message: /jobs: rows that are already there break a unique index/,
    });
  });

  it('prepared with another partition count: a pod that is configured otherwise does not start', async () => {
    openDatabase();
    await (await boot(hostModule())).close();
    opened.length = 0;
    const error = { code: 'partition_count', message: /set up with 8 partitions, this pod is configured with 16/ };
    await expectRefused(error, { partitions: 16 });
  });

  it('after what was wrong is put right, the same process can boot', async () => {
    openDatabase();
    await connection.collection('jobs').createIndex({ target: 1 }, { name: 'due_fast' });
    await expectRefused({ code: 'index_conflict', message: /due_fast/ });
    await connection.collection('jobs').dropIndex('due_fast');
    const app = await boot(hostModule());
    expect(app.get(JobsEvents)).toBeDefined();
  });
});

describe('two forRoot()', () => {
  it('on one connection are one too many: the second is refused, wherever it was imported', async () => {
    openDatabase();
    @Module({ imports: [hostModule(), JobsModule.forRoot({ partitions: PARTITIONS, workers: 'off' })] })
    class Twice {}
    await expect(boot(Twice)).rejects.toMatchObject({ code: 'two_engines' });
  });
});
