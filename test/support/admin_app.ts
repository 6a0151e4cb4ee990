/** The admin API on a real HTTP server, with a real guard, beside a pod whose lanes the test moves by hand. */
import { VersioningType, type CanActivate, type ExecutionContext, type INestApplication } from '@nestjs/common';
import type { ModuleMetadata } from '@nestjs/common';
import { MongooseModule } from '@nestjs/mongoose';
import type { NestExpressApplication } from '@nestjs/platform-express';
import { Test } from '@nestjs/testing';
import mongoose from 'mongoose';
import type { Server } from 'node:http';
import request from 'supertest';
import { CLOCK } from '../../src/common/ports/clock.js';
import { RANDOM } from '../../src/common/ports/random.js';
import { JobsAdminModule, JobsModule, JobsWorkersModule, type JobsModuleOptions } from '../../src/index.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from './fake_clock.js';
import { TestPod, type TestDatabase } from './pod.js';

/** A host's guard: the role and the name stand in headers. */
export class HeaderRoleGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const http = context.switchToHttp().getRequest<{ headers: Record<string, string | undefined>; user?: object }>();
    http.user = { id: http.headers['x-user'], role: http.headers['x-role'] };
    return http.headers['x-role'] === 'admin';
  }
}

export interface AdminAppOptions {
  jobs?: JobsModuleOptions;
  targets?: JobTargetOptions[];
  /** Default: `HeaderRoleGuard`. */
  guards?: NonNullable<JobsModuleOptions['admin']>['guards'];
  /** What the host has beside the engine. */
  imports?: ModuleMetadata['imports'];
  providers?: ModuleMetadata['providers'];
  logger?: { log(): void; warn(text: string): void; error(text: string): void };
  setUp?(app: NestExpressApplication): void;
}

const SILENT = { log: () => undefined, error: () => undefined, warn: () => undefined };

export class AdminApp {
  private constructor(
    readonly app: INestApplication<Server>,
    readonly pod: TestPod,
    readonly clock: FakeClock,
  ) {}

  static async start(database: TestDatabase, options: AdminAppOptions = {}): Promise<AdminApp> {
    const clock = new FakeClock();
    const { jobs = {}, targets = [], guards = [HeaderRoleGuard], logger = SILENT } = options;
    const { imports = [], providers = [] } = options;
    const module = await Test.createTestingModule({
      providers,
      imports: [
        MongooseModule.forRoot(database.uri, { dbName: database.name, monitorCommands: true, maxPoolSize: 30 }),
        JobsModule.forRoot({ workers: 'manual', partitions: 4, ...jobs, admin: { ...jobs.admin, guards } }),
        JobsAdminModule,
        ...imports,
        JobsWorkersModule,
      ],
    })
      .overrideProvider(CLOCK)
      .useValue(clock)
      .overrideProvider(RANDOM)
      .useValue(() => 0)
      .setLogger(logger)
      .compile();
    for (const target of targets) module.get(JobTargetsRegistry).register(target);
    const app = module.createNestApplication<NestExpressApplication>();
    app.setGlobalPrefix('api');
    app.enableVersioning({ type: VersioningType.URI });
    options.setUp?.(app);
    await app.listen(0, '127.0.0.1');
    return new AdminApp(app, new TestPod(module, clock), clock);
  }

  get(path: string, role = 'admin'): request.Test {
    return request(this.app.getHttpServer()).get(`/api/v1${path}`).set('x-role', role).set('x-user', 'ada');
  }

  post(path: string, body?: object, role = 'admin'): request.Test {
    const call = request(this.app.getHttpServer()).post(`/api/v1${path}`).set('x-role', role).set('x-user', 'ada');
    return body === undefined ? call : call.send(body);
  }

  async audit(): Promise<Record<string, unknown>[]> {
    return this.pod.collections.audit.find({}, { projection: { _id: 0, at: 0 }, sort: { _id: 1 } }).toArray();
  }

  /** A row as it would stand, without a run. */
  async insert(row: Partial<JobDoc>): Promise<JobDoc> {
    const [doc] = await this.insertMany([row]);
    return doc!;
  }

  async insertMany(rows: Partial<JobDoc>[]): Promise<JobDoc[]> {
    const now = this.clock.now();
    const docs = rows.map((row): JobDoc => {
      const _id = row._id ?? new mongoose.Types.ObjectId();
      const dedupe_key = row.dedupe_key ?? _id.toHexString();
      return {
        _id,
        code: 'ship',
        target: 'orders:ship',
        lane: 'fast',
        order_key: row.key ?? dedupe_key,
        partition: 0,
        version: 0,
        payload: { secret: 'never in a list' },
        dedupe_key,
        status: 'PENDING',
        attempts: 0,
        crashes: 0,
        priority: 2,
        run_at: now,
        next_run_at: now,
        bytes: 100,
        created_at: now,
        updated_at: now,
        ...(row.status === 'DEAD' && { closed_at: now, attempts: 6 }),
        ...row,
      };
    });
    await this.pod.jobs.insertMany(docs);
    return docs;
  }

  async find(row: Pick<JobDoc, '_id'>): Promise<JobDoc | null> {
    return this.pod.jobs.findOne({ _id: row._id });
  }

  async close(): Promise<void> {
    await this.app.close();
  }
}
