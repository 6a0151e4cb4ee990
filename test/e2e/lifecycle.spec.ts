import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { Injectable, Module, Scope, type Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MongooseModule } from '@nestjs/mongoose';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import {
  JobsEvents,
  JobsModule,
  JobsWorkersModule,
  JobTarget,
  SideEffectService,
  type Job,
  type JobsEvent,
  type JobsModuleOptions,
} from '../../src/index.js';
import mongoose from 'mongoose';
import { JOBS_COLLECTIONS, type JobsCollections } from '../../src/jobs/store/collections.js';
import { TestDatabase } from '../support/pod.js';

const db = new TestDatabase();

@Injectable()
@JobTarget({ name: 'mail:send', lane: 'fast' })
class Mailer {
  readonly sent: unknown[] = [];
  async handle(job: Job): Promise<void> {
    this.sent.push(job.payload);
  }
}

@Injectable({ scope: Scope.REQUEST })
@JobTarget({ name: 'mail:bad', lane: 'fast' })
class RequestScoped {
  async handle(): Promise<void> {}
}

@Injectable()
@JobTarget({ name: 'mail:none', lane: 'fast' })
class WithoutHandler {}

function host(provider: Type, options: JobsModuleOptions = {}): Type {
  @Module({
    imports: [
      MongooseModule.forRoot(db.uri, { dbName: db.name }),
      JobsModule.forRoot({ partitions: 2, ...options }),
      JobsWorkersModule,
    ],
    providers: [provider],
  })
  class Host {}
  return Host;
}

const boot = (module: Type): Promise<Awaited<ReturnType<typeof NestFactory.createApplicationContext>>> =>
  NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });

describe('a Nest application with its loops on', () => {
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  it('delivers what was enqueued to a decorated class, and closes cleanly', async () => {
    const app = await boot(host(Mailer));
    const ended = new Promise<JobsEvent>((done) => {
      app.get(JobsEvents).on((event) => void (event.type === 'run_ended' && done(event)));
    });
    await app.get(SideEffectService).enqueue('mail:send', { to: 'you' });
    expect(await ended).toMatchObject({ result: 'success', row: { target: 'mail:send' } });
    expect(app.get(Mailer).sent).toEqual([{ to: 'you' }]);
    await app.close();
  });

  it('with workers off it only enqueues: no partition, no liveness row, no run', async () => {
    const app = await boot(host(Mailer, { workers: 'off' }));
    await app.get(SideEffectService).enqueue('mail:send', 1);
    const { partitions, workers, jobs } = app.get<JobsCollections>(JOBS_COLLECTIONS);
    await app.close();
    const connection = await mongoose.createConnection(db.uri, { dbName: db.name }).asPromise();
    expect(await connection.collection(partitions.collectionName).countDocuments({ owner: { $ne: null } })).toBe(0);
    expect(await connection.collection(workers.collectionName).countDocuments()).toBe(0);
    expect(await connection.collection(jobs.collectionName).countDocuments({ status: 'PENDING' })).toBe(1);
    await connection.close();
  });

  it('refuses a request-scoped target and one without a handler, by the name of the class', async () => {
    await expect(boot(host(RequestScoped))).rejects.toThrow('@JobTarget on RequestScoped');
    await expect(boot(host(WithoutHandler))).rejects.toThrow('@JobTarget on WithoutHandler');
  });

  it('refuses a second JobsModule.forRoot() on one connection', async () => {
    @Module({ imports: [JobsModule.forRoot({ partitions: 2 }), host(Mailer)] })
    class Twice {}
    await expect(boot(Twice)).rejects.toMatchObject({ code: 'two_engines' });
  });

  it('the built package is imported as a user would', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'sidelane-user-'));
    try {
      await mkdir(join(folder, 'node_modules'));
      await symlink(resolve('.'), join(folder, 'node_modules', 'sidelane'));
      await writeFile(
        join(folder, 'user.mjs'),
        "const s = await import('sidelane'); console.log(typeof s.inTransaction, typeof s.JobsModule.forRoot);",
      );
      const { stdout } = await promisify(execFile)(process.execPath, ['user.mjs'], { cwd: folder });
      expect(stdout.trim()).toBe('function function');
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
