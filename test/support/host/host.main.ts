/**
 * A real Nest application in a process of its own, for the shutdown and boot tests. What it does is in the environment:
 * `MONGO_URI`, `DB`; `ORDER` (`workers_last` or `workers_first`); `HANDLER`: milliseconds, `endless` (deaf to its
 * signal) or `obedient` (ends as soon as the signal says so); `OPTIONS`, the engine's, as JSON; `KAFKA`, a broker; `MONGOOSE`, more options
 * of the connection as JSON; `SCHEDULE`, the expression of a schedule that does nothing.
 *
 * Every line on stdout is `<ms since SIGTERM, or -> <what> <detail>`. On its way out it tells which sockets are open.
 */
import 'reflect-metadata';
import {
  Body,
  Controller,
  Inject,
  Injectable,
  Module,
  Post,
  type DynamicModule,
  type OnModuleInit,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { MongooseModule } from '@nestjs/mongoose';
import type { Server } from 'node:http';
import { Socket, type AddressInfo } from 'node:net';
import {
  endOnSignals,
  JobsModule,
  JobsWorkersModule,
  JobTargetsRegistry,
  KafkaModule,
  SchedulesModule,
  SchedulesService,
  SideEffectService,
  type Job,
  type JobContext,
  type JobsModuleOptions,
} from '../../../src/index.js';

const { env } = process;
let signalled: number | undefined;

function say(what: string, detail: string | number = ''): void {
  const at = signalled === undefined ? '-' : Math.round(performance.now() - signalled);
  process.stdout.write(`${at} ${what} ${detail}\n`);
}

for (const trouble of ['unhandledRejection', 'uncaughtException'] as const) {
  process.on(trouble, (error: unknown) =>
    say('UNHANDLED', `${trouble} ${(error as Error | null)?.stack ?? String(error)}`),
  );
}
// Before Nest's own listener: the time of the first signal is what everything is measured from.
process.on('SIGTERM', () => {
  signalled ??= performance.now();
  say('signal');
});
process.on('exit', (code) => {
  const handles = (process as unknown as { _getActiveHandles(): unknown[] })._getActiveHandles();
  const open = handles.filter((handle) => handle instanceof Socket && !handle.destroyed && handle.remotePort);
  say('sockets', `${open.length} ${open.map((socket) => (socket as Socket).remotePort).join(' ')}`);
  say('exit', code);
});

async function handle(job: Job, { signal }: JobContext): Promise<void> {
  say('started', job.target);
  signal.addEventListener('abort', () =>
    say('called_off', `${job.target} ${(signal.reason as { why?: string }).why ?? ''}`),
  );
  await new Promise<void>((resolve, reject) => {
    const { HANDLER = '0' } = env;
    if (HANDLER === 'obedient') signal.addEventListener('abort', () => reject(signal.reason as Error));
    else if (HANDLER !== 'endless') setTimeout(resolve, Number(HANDLER));
  });
  say('ended', job.target);
}

@Injectable()
class Targets implements OnModuleInit {
  constructor(@Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry) {}

  onModuleInit(): void {
    for (const lane of ['fast', 'long'] as const) {
      for (const delivery_mode of ['at_most_once', 'at_least_once'] as const) {
        const common = { lane, delivery_mode, handler: handle, concurrency: 2 };
        this.registry.register({
          name: `${lane}:${delivery_mode}`,
          ...common,
          ...(lane === 'fast' && { max_in_flight: 1 }),
        });
      }
    }
    this.registry.register({ name: 'fast:sequence', lane: 'fast', delivery_mode: 'at_least_once', handler: handle });
  }
}

@Controller('jobs')
class EnqueueController {
  constructor(@Inject(SideEffectService) private readonly sideEffect: SideEffectService) {}

  @Post()
  async enqueue(@Body() body: { target: string; dedupe_key: string; rows?: number }): Promise<object> {
    const { target, dedupe_key: key, rows } = body;
    if (rows === undefined) return this.sideEffect.enqueue(target, {}, { key, dedupe_key: key });
    // One key's rows, there together: the lane reads and marks them as one batch.
    const versions = Array.from({ length: rows }, (_, version) => version);
    return this.sideEffect.enqueueMany(versions.map((version) => ({ target, payload: {}, key, version })));
  }
}

@Module({ providers: [Targets], controllers: [EnqueueController] })
class BusinessModule {}

@Module({})
class ScheduleModule implements OnModuleInit {
  constructor(@Inject(SchedulesService) private readonly schedules: SchedulesService) {}

  onModuleInit(): void {
    this.schedules.declare({ code: 'nothing', cron: env['SCHEDULE']!, handler: async () => undefined });
  }
}

const engine: DynamicModule[] = [
  MongooseModule.forRoot(env['MONGO_URI']!, {
    dbName: env['DB']!,
    ...(JSON.parse(env['MONGOOSE'] ?? '{}') as object),
  }),
  JobsModule.forRoot(JSON.parse(env['OPTIONS'] ?? '{}') as JobsModuleOptions),
];
if (env['KAFKA']) {
  const target_topics = `${env['TOPIC'] ?? 'nowhere'}:at_least_once`;
  engine.push(KafkaModule.forRoot({ brokers: [env['KAFKA']], target_topics }));
}
if (env['SCHEDULE']) engine.push(SchedulesModule.forRoot(), { module: ScheduleModule });
const rest = [...engine, BusinessModule];

@Module({ imports: env['ORDER'] === 'workers_first' ? [JobsWorkersModule, ...rest] : [...rest, JobsWorkersModule] })
class HostModule {}

const app = await NestFactory.create(HostModule, { abortOnError: false }).catch((error: unknown) => {
  say('boot_failed', `${(error as { code?: string }).code ?? ''} ${(error as Error).message}`);
  process.exit(1);
});
endOnSignals(app);
await app.listen(0, '127.0.0.1');
say('listening', ((app.getHttpServer() as Server).address() as AddressInfo).port);
