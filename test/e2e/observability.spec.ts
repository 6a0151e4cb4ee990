/** What operators see: metrics, traces, logs and health of a real application, scraped and asked over HTTP. */
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Module, type DynamicModule, type INestApplication, type LoggerService } from '@nestjs/common';
import { MongooseModule } from '@nestjs/mongoose';
import { HealthCheckService, TerminusModule } from '@nestjs/terminus';
import { Test, type TestingModule } from '@nestjs/testing';
import { context, propagation, SpanKind, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-base';
import mongoose from 'mongoose';
import { readFileSync } from 'node:fs';
import { Registry } from 'prom-client';
import request from 'supertest';
import {
  EngineHealth,
  JobRejected,
  JobsEvents,
  JobsHealthIndicator,
  JobsHealthModule,
  JobsModule,
  JobsWorkersModule,
  JobTargetsRegistry,
  MetricsModule,
  SchedulesModule,
  TargetOutcomeUnknown,
  TargetUnreachable,
  type JobContext,
  type Job,
  type JobsEvent,
  type JobsModuleOptions,
  type JobTargetOptions,
} from '../../src/index.js';
import { CLOCK } from '../../src/common/ports/clock.js';
import { METRICS } from '../../src/jobs/observability/metric_table.js';
import { toRecord } from '../../src/kafka/kafka.message.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, TestPod } from '../support/pod.js';

const db = new TestDatabase();
let clock: FakeClock;
let app: INestApplication | undefined;
let pod: TestPod;
let logged: string[];

const SPECS = Object.values(METRICS);

interface HostOptions {
  jobs?: JobsModuleOptions;
  targets?: JobTargetOptions[];
  extra?: (DynamicModule | (new () => unknown))[];
  metrics?: DynamicModule;
}

async function boot({ jobs = {}, targets = [], extra = [], metrics = MetricsModule.forRoot() }: HostOptions = {}) {
  @Module({
    imports: [
      MongooseModule.forRoot(db.uri, { dbName: db.name, monitorCommands: true }),
      JobsModule.forRoot({ workers: 'manual', partitions: 2, ...jobs }),
      metrics,
      JobsHealthModule,
      ...extra,
      JobsWorkersModule,
    ],
  })
  class Host {}
  logged = [];
  const write = (...parts: unknown[]): void => void logged.push(parts.map(String).join(' '));
  const capture: LoggerService = { log: write, warn: write, error: write, fatal: write };
  const module: TestingModule = await Test.createTestingModule({ imports: [Host] })
    .overrideProvider(CLOCK)
    .useValue(clock)
    .setLogger(capture)
    .compile();
  for (const target of targets) module.get(JobTargetsRegistry).register(target);
  app = module.createNestApplication();
  await app.init();
  pod = new TestPod(module, clock);
  return app;
}

const scrape = async (): Promise<string> => {
  const answer = await request(app!.getHttpServer()).get('/metrics').expect(200);
  return answer.text;
};
const emit = (event: JobsEvent): void => app!.get(JobsEvents).emit(event);
const fast = (name: string, handler: (job: Job, run: JobContext) => Promise<unknown>): JobTargetOptions => ({
  name,
  lane: 'fast',
  handler,
});
const fail = (error: unknown) => () => Promise.reject(error as Error);

async function runAll(): Promise<void> {
  await pod.leases.heartbeat();
  await pod.drain();
}

beforeEach(() => {
  clock = new FakeClock();
});
afterEach(async () => {
  await app?.close();
  app = undefined;
  await db.reset();
});
afterAll(() => db.drop());

describe('the metrics page', () => {
  it('counts enqueues, starts and ends by outcome, durations, pauses and DEAD', async () => {
    await boot({
      targets: [
        fast('t:ok', () => Promise.resolve()),
        fast('t:no', fail(new Error('no'))),
        fast('t:bad', fail(new JobRejected('bad'))),
        fast('t:away', fail(new TargetUnreachable('away'))),
        fast('t:lost', fail(new TargetOutcomeUnknown('lost'))),
        fast('t:chained', (_, run) => run.complete(() => Promise.resolve())),
        { name: 'l:slow', lane: 'long', handler: () => Promise.resolve() },
      ],
    });
    const names = ['t:ok', 't:no', 't:bad', 't:away', 't:lost', 't:chained', 'l:slow'];
    for (const name of names) await pod.sideEffect.enqueue(name, 1);
    await runAll();
    const text = await scrape();
    for (const name of names) {
      const lane = name === 'l:slow' ? 'long' : 'fast';
      expect(text).toContain(`sidelane_jobs_enqueued_total{target="${name}",lane="${lane}"} 1`);
      expect(text).toContain(`sidelane_runs_started_total{target="${name}",lane="${lane}"} 1`);
      expect(text).toContain(`sidelane_run_duration_seconds_count{target="${name}",lane="${lane}"} 1`);
    }
    const ended = { ok: 'success', no: 'answered', bad: 'rejected', away: 'unreachable', lost: 'unknown' };
    for (const [name, outcome] of Object.entries({ ...ended, chained: 'completed' })) {
      expect(text).toContain(`sidelane_runs_ended_total{target="t:${name}",lane="fast",outcome="${outcome}"} 1`);
    }
    expect(text).toContain('sidelane_jobs_dead_total{target="t:bad"} 1');
    expect(text).toContain('sidelane_jobs_dead_total{target="t:lost"} 1');
    expect(text).toContain('sidelane_target_pauses_total{target="t:away",by="engine"} 1');
    expect(text).toContain('sidelane_target_paused{target="t:away"} 1');
    expect(text).toContain('sidelane_claims_total 1');
    expect(text).toContain('sidelane_partitions_owned 2');
    clock.advance(31_000);
    await runAll();
    expect(await scrape()).toContain('sidelane_target_probes_total{target="t:away"} 1');
  });

  it('shows what alerts count before it has happened: the first time is an increase, too', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    const text = await scrape();
    for (const name of ['jobs_dead', 'outcomes_lost', 'outcomes_kept']) {
      expect(text).toContain(`sidelane_${name}_total{target="t:ok"} 0`);
    }
    for (const at of ['renewal', 'outcome']) {
      expect(text).toContain(`sidelane_claims_lost_total{target="t:ok",at="${at}"} 0`);
    }
  });

  it('a run that an admin cancelled ends as every run does', async () => {
    let started = (): void => undefined;
    const running = new Promise<void>((resolve) => (started = resolve));
    const handler = (_: Job, { signal }: JobContext) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('called off')));
        started();
      });
    await boot({ targets: [{ name: 'l:slow', lane: 'long', handler }] });
    await pod.sideEffect.enqueue('l:slow', 1);
    await pod.longLane.startOnce();
    await running;
    emit({ type: 'cancel_requested', id: (await pod.jobs.findOne({}))!._id.toHexString() });
    await pod.longLane.idle();
    const text = await scrape();
    expect(text).toContain('sidelane_runs_ended_total{target="l:slow",lane="long",outcome="cancelled"} 1');
    expect(text).toContain('sidelane_jobs_cancelled_total{target="l:slow"} 1');
  });

  it('tells what waits: rows per state and the age of the oldest due row per target', async () => {
    await boot({ targets: [fast('t:no', fail(new JobRejected('no'))), fast('t:idle', () => Promise.resolve())] });
    await pod.sideEffect.enqueue('t:no', 1);
    await runAll();
    await pod.sideEffect.enqueue('t:no', 2);
    await pod.sideEffect.enqueue('t:no', 3, { delay_ms: 3_600_000 });
    clock.advance(20_000);
    await pod.leases.heartbeat();
    const text = await scrape();
    expect(text).toContain('sidelane_backlog{state="PENDING"} 2');
    expect(text).toContain('sidelane_backlog{state="DEAD"} 1');
    expect(text).toContain('sidelane_oldest_due_age_seconds{target="t:no"} 20');
    expect(text).toContain('sidelane_oldest_due_age_seconds{target="t:idle"} 0');
  });

  it('follows the events that only happen in trouble', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    const row = { id: '1', target: 't:ok', code: 'c', dedupe_key: 'd', attempts: 1 };
    const error = new Error('e');
    const events: JobsEvent[] = [
      { type: 'cancelled', row },
      { type: 'skipped', rows: [row, row] },
      { type: 'on_dead_failed', row, error },
      { type: 'rate_limited', target: 't:ok', rows: 3 },
      { type: 'target_resumed', target: 't:ok' },
      { type: 'taken_over', partition: 1, target: 't:ok', dead: 2, counted: 4 },
      { type: 'reclaimed', again: 1, dead: 2, cancelled: 3 },
      { type: 'claimed', rows: 5, conflicts: 2 },
      { type: 'claim_lost', target: 't:ok', count: 2, rows: [], where: 'renewal' },
      { type: 'outcome_lost', target: 't:ok', partition: 1, count: 2 },
      { type: 'outcome_kept', target: 't:ok', error },
      { type: 'round_failed', target: 't:ok', partition: 1, error },
      { type: 'loop_failed', loop: 'heartbeat', error },
      { type: 'loop_failed', loop: 'made up', error },
      { type: 'partitions_released', partitions: [1] },
      { type: 'partitions_lost', partitions: [1, 2] },
      { type: 'slot_enqueued', code: 'nightly', slot: new Date(0) },
      { type: 'slot_skipped', code: 'nightly', slot: new Date(0), at: 'tick', reason: 'late' },
      { type: 'schedule_broken', code: 'nightly', error },
      { type: 'lossy_dropped', target: 't:ok', count: 7, reason: 'timeout' },
      { type: 'redis_state', use: 'wake_up', state: 'down', error },
      { type: 'run_ended', row, result: 'a new class', ms: 5 },
    ];
    events.forEach(emit);
    const text = await scrape();
    for (const line of [
      'sidelane_jobs_cancelled_total{target="t:ok"} 1',
      'sidelane_jobs_skipped_total{target="t:ok"} 2',
      'sidelane_on_dead_failed_total{target="t:ok"} 1',
      'sidelane_rate_limited_total{target="t:ok"} 3',
      'sidelane_target_paused{target="t:ok"} 0',
      'sidelane_takeovers_total{target="t:ok",verdict="dead"} 2',
      'sidelane_takeovers_total{target="t:ok",verdict="again"} 4',
      'sidelane_reclaimed_total{verdict="cancelled"} 3',
      'sidelane_claims_total 5',
      'sidelane_claim_conflicts_total 2',
      'sidelane_claims_lost_total{target="t:ok",at="renewal"} 2',
      'sidelane_outcomes_lost_total{target="t:ok"} 2',
      'sidelane_outcomes_kept_total{target="t:ok"} 1',
      'sidelane_rounds_failed_total{target="t:ok"} 1',
      'sidelane_loop_failures_total{loop="heartbeat"} 1',
      'sidelane_loop_failures_total{loop="other"} 1',
      'sidelane_partitions_released_total 1',
      'sidelane_partitions_lost_total 2',
      'sidelane_slots_enqueued_total{target="unknown"} 1',
      'sidelane_slots_skipped_total{target="unknown",at="tick"} 1',
      'sidelane_schedules_broken_total{target="unknown"} 1',
      'sidelane_lossy_dropped_total{target="t:ok",reason="timeout"} 7',
      'sidelane_redis_up{use="wake_up"} 0',
      'sidelane_runs_ended_total{target="t:ok",lane="fast",outcome="other"} 1',
      'sidelane_health_problems{problem="no_owner"} 0',
      'sidelane_event_loop_blocked_seconds 0',
      'sidelane_loop_late_seconds{loop="long_lane"} 0',
    ]) {
      expect(text).toContain(line);
    }
  });

  it('stays bounded with 1,000 distinct targets and codes, known or not', async () => {
    const many = Array.from({ length: 1_000 }, (_, at) => fast(`known:${at}`, () => Promise.resolve()));
    await boot({ targets: many });
    for (let at = 0; at < 1_000; at++) {
      for (const target of [`known:${at}`, `strange:${at}`]) {
        const row = { id: `id${at}`, target, code: `code${at}`, dedupe_key: `dedupe${at}`, attempts: 0 };
        emit({ type: 'enqueued', rows: [{ target, partition: 0, lane: 'fast' }] });
        emit({ type: 'run_ended', row, result: `made up ${at}`, ms: 1 });
        emit({ type: 'target_paused', target, by: 'engine', reason: `reason ${at}` });
        emit({ type: 'loop_failed', loop: `loop${at}`, error: new Error('e') });
        emit({ type: 'slot_skipped', code: `code${at}`, slot: new Date(0), at: 'run', reason: `reason ${at}` });
      }
    }
    const text = await scrape();
    const labels = new Set([...text.matchAll(/target="([^"]*)"/g)].map(([, name]) => name));
    expect(labels.size).toBeLessThanOrEqual(202); // 200 names, `other`, `unknown`
    expect(text).toContain('target="unknown"');
    expect(text).toContain('target="other"');
    expect(text).not.toMatch(/strange|code\d|dedupe|made up|reason |loop\d/);
  });

  it('twenty scrapers at once, and again within seconds, read the database once', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await pod.sideEffect.enqueue('t:ok', 1);
    await pod.leases.heartbeat();
    const storm = () => Promise.all(Array.from({ length: 20 }, scrape));
    const commands = await pod.commandsOf(storm);
    expect(commands.length).toBeLessThanOrEqual(5);
    clock.advance(10_000);
    expect(await pod.commandsOf(storm)).toEqual([]);
    clock.advance(10_000);
    expect((await pod.commandsOf(storm)).length).toBeGreaterThan(0);
  });

  it('no scrape, no command', async () => {
    await boot();
    expect(await pod.commandsOf(() => new Promise((resolve) => setImmediate(resolve)))).toEqual([]);
  });

  it('is served while the database fails and while it does not answer, with the age of the last numbers', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await scrape();
    const { jobs } = pod.collections;
    jobs.aggregate = () => {
      throw new Error('gone');
    };
    clock.advance(60_000);
    const text = await scrape();
    expect(text).toContain('sidelane_backlog_read_age_seconds 60');
    expect(text).toContain('sidelane_backlog{state="DEAD"} 0');
    let asked = 0;
    jobs.aggregate = (() => ({ toArray: () => new Promise(() => void asked++) })) as never;
    clock.advance(60_000);
    const hanging = scrape();
    await clock.armed(2_000);
    clock.advance(2_000);
    expect(await hanging).toContain('sidelane_backlog_read_age_seconds 122');
    clock.advance(60_000);
    const next = scrape();
    await clock.armed(2_000);
    clock.advance(2_000);
    expect(await next).toContain('sidelane_backlog_read_age_seconds 184');
    expect(asked).toBe(1); // reads that hang do not pile up
  });

  it('writes into the registry of a host that has one, which serves it itself', async () => {
    const registry = new Registry();
    await boot({ metrics: MetricsModule.forRoot({ registry }) });
    await request(app!.getHttpServer()).get('/metrics').expect(404);
    expect(await registry.metrics()).toContain('sidelane_partitions_owned 0');
  });
});

describe('what docs/ names', () => {
  const read = (path: string): string => readFileSync(new URL(`../../docs/${path}`, import.meta.url), 'utf8');
  const base = (name: string): string => name.replace(/_(bucket|sum|count)$/, '');
  const known = new Set(SPECS.map(({ name }) => name));
  const named = (text: string): string[] => [...text.matchAll(/\bsidelane_[a-z_]+/g)].map(([name]) => name);

  it.each(['grafana/sidelane.json', 'alerts.yml'])('%s asks only for metrics that exist', (path) => {
    const names = named(read(path));
    expect(names.length).toBeGreaterThan(5);
    expect(names.filter((name) => !known.has(name) && !known.has(base(name)))).toEqual([]);
  });

  it('metrics.md lists every metric with its kind and labels, and no other', () => {
    const rows = [...read('metrics.md').matchAll(/^\| `(sidelane_\w+)` +\| (\w+) +\| ([^|]*?) *\|/gm)];
    const listed = rows.map(([, name, kind, labels]) => ({ name, kind, labels }));
    const expected = SPECS.map(({ name, kind, labels }) => ({
      name,
      kind,
      labels: labels.map((label) => `\`${label}\``).join(', '),
    }));
    const byName = (a: { name?: string | undefined }, b: { name?: string | undefined }) => (a.name! < b.name! ? -1 : 1);
    expect([...listed].sort(byName)).toEqual([...expected].sort(byName));
  });

  it('the dashboard is JSON with a query in each panel', () => {
    const dashboard = JSON.parse(read('grafana/sidelane.json')) as { panels: { targets?: { expr: string }[] }[] };
    const panels = dashboard.panels.filter((panel) => panel.targets);
    expect(panels.length).toBeGreaterThan(8);
    for (const { targets } of panels) for (const { expr } of targets!) expect(expr).toContain('sidelane_');
  });
});

describe('health over HTTP', () => {
  it('GET /health answers up, then degraded, and 200 both times', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await pod.leases.heartbeat();
    const up = await request(app!.getHttpServer()).get('/health').expect(200);
    expect(up.body).toMatchObject({ status: 'up', details: { problems: {} } });
    await degrade();
    const degraded = await request(app!.getHttpServer()).get('/health').expect(200);
    expect(degraded.body).toMatchObject({
      status: 'degraded',
      details: { problems: { unknown_target: { count: 1 } } },
    });
    expect(await scrape()).toContain('sidelane_health_problems{problem="unknown_target"} 1');
    expect(logged.filter((line) => line.includes('unknown_target'))).toHaveLength(1);
  });

  it('Terminus takes the indicator, and reports the whole as degraded, not as failed', async () => {
    await boot({
      extra: [TerminusModule.forRoot({ logger: false })],
      targets: [fast('t:ok', () => Promise.resolve())],
    });
    await pod.leases.heartbeat();
    const terminus = await app!.resolve(HealthCheckService);
    const indicator = app!.get(JobsHealthIndicator);
    const ask = () => terminus.check([() => indicator.check(), () => indicator.check('engine')]);
    expect(await ask()).toMatchObject({ status: 'ok', info: { jobs: { status: 'up' }, engine: { status: 'up' } } });
    await degrade();
    expect(await ask()).toMatchObject({ status: 'degraded', details: { jobs: { status: 'degraded' } } });
  });

  it('an enabled schedule that no live pod declares degrades it', async () => {
    await boot({ extra: [SchedulesModule.forRoot({})] });
    const now = clock.now();
    await pod.connection.db!.collection('schedules').insertOne({ code: 'nightly', enabled: true, next_run_at: now });
    await degradeBy(() => Promise.resolve());
    expect(app!.get(EngineHealth).check().details.problems.unknown_target?.detail).toContain('schedule:nightly');
  });

  /** Rows of a target that no pod knows, seen twice. */
  async function degrade(): Promise<void> {
    await degradeBy(async () => {
      await pod.sideEffect.enqueue('t:ok', 1);
      await pod.jobs.updateMany({}, { $set: { target: 'gone:target' } });
    });
  }

  async function degradeBy(cause: () => Promise<unknown>): Promise<void> {
    await cause();
    for (let tick = 0; tick < 12; tick++) {
      clock.advance(10_000);
      await pod.leases.heartbeat();
      await app!.get(EngineHealth).runOnce();
    }
  }
});

describe('traces', () => {
  const exporter = new InMemorySpanExporter();
  const tracer = () => trace.getTracer('test');
  const spans = (name: string) => exporter.getFinishedSpans().filter((span) => span.name === name);

  beforeAll(() => {
    context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
    trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
  });
  afterEach(() => exporter.reset());
  afterAll(() => {
    trace.disable();
    context.disable();
    propagation.disable();
  });

  const inRequest = <T>(work: () => Promise<T>): Promise<{ traceId: string; spanId: string }> =>
    tracer().startActiveSpan('POST /orders', { kind: SpanKind.SERVER }, async (span) => {
      await work();
      span.end();
      return span.spanContext();
    });

  it('one trace leads from the request through the row and its run to the headers of the Kafka record', async () => {
    const sent: Record<string, string>[] = [];
    let active: string | undefined;
    await boot({
      targets: [
        fast('kafka:orders', async (job) => {
          active = trace.getActiveSpan()?.spanContext().spanId;
          sent.push({ ...toRecord(job, 'orders').headers });
          await pod.sideEffect.enqueue('t:next', 1);
        }),
        fast('t:next', () => Promise.resolve()),
      ],
    });
    const { traceId, spanId } = await inRequest(() => pod.sideEffect.enqueue('kafka:orders', { no: 1 }, { key: 'k' }));
    const row = await pod.jobs.findOne({});
    const [enqueue] = spans('enqueue kafka:orders');
    expect(enqueue!.kind).toBe(SpanKind.PRODUCER);
    expect(enqueue!.parentSpanContext?.spanId).toBe(spanId);
    expect(row).toMatchObject({ traceparent: `00-${traceId}-${enqueue!.spanContext().spanId}-01`, trace_id: traceId });
    await runAll();
    const [run] = spans('run kafka:orders');
    expect(run!.kind).toBe(SpanKind.CONSUMER);
    expect(run!.parentSpanContext).toMatchObject({ traceId, spanId: enqueue!.spanContext().spanId, isRemote: true });
    expect(run!.attributes).toMatchObject({
      'sidelane.outcome': 'success',
      'messaging.destination.name': 'kafka:orders',
    });
    expect(active).toBe(run!.spanContext().spanId);
    expect(sent).toEqual([
      expect.objectContaining({ traceparent: `00-${traceId}-${run!.spanContext().spanId}-01`, trace_id: traceId }),
    ]);
    expect(spans('enqueue t:next')[0]!.parentSpanContext?.spanId).toBe(run!.spanContext().spanId);
    expect(spans('run t:next')[0]!.spanContext().traceId).toBe(traceId);
  });

  it('a run that a commit woke up is no part of whatever else the request did', async () => {
    const parents: (string | undefined)[] = [];
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await pod.sideEffect.enqueue('t:ok', 1);
    await inRequest(runAll);
    parents.push(spans('run t:ok')[0]!.parentSpanContext?.spanId);
    expect(parents).toEqual([spans('enqueue t:ok')[0]!.spanContext().spanId]);
  });

  it('a batch is one span with a link to each row’s trace; each record continues its own', async () => {
    const headers: Record<string, string>[] = [];
    await boot({
      jobs: { partitions: 1 },
      targets: [
        {
          name: 'kafka:orders',
          lane: 'fast',
          delivery_mode: 'at_least_once',
          batch_handler: (jobs) =>
            Promise.resolve(void headers.push(...jobs.map((job) => ({ ...toRecord(job, 'o').headers })))),
        },
      ],
    });
    const first = await inRequest(() => pod.sideEffect.enqueue('kafka:orders', 1));
    const second = await inRequest(() => pod.sideEffect.enqueue('kafka:orders', 2));
    await runAll();
    const runs = spans('run kafka:orders');
    expect(runs).toHaveLength(1);
    const traceIds = [first.traceId, second.traceId].sort();
    expect(runs[0]!.links.map((link) => link.context.traceId).sort()).toEqual(traceIds);
    expect(runs[0]!.parentSpanContext).toBeUndefined();
    expect(new Set(headers.map(({ traceparent }) => traceparent!.split('-')[1]))).toEqual(new Set(traceIds));
  });

  it('a failed run says so without the payload; what is sent again keeps the trace', async () => {
    await boot({ targets: [fast('t:no', fail(new Error(`no ${'x'.repeat(300)} secret`)))] });
    const { traceId } = await inRequest(() => pod.sideEffect.enqueue('t:no', 1));
    await runAll();
    clock.advance(120_000);
    await runAll();
    const runs = spans('run t:no');
    expect(runs.map((span) => span.spanContext().traceId)).toEqual([traceId, traceId]);
    expect(runs.map((span) => span.attributes['sidelane.outcome'])).toEqual(['answered', 'answered']);
    expect(runs[0]!.status.message).not.toContain('secret');
  });

  it('the request context’s traceparent is the parent where no span is active', async () => {
    const { requestContext } = await import('../../src/index.js');
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await requestContext.run({ traceparent, trace_id: 'mine' }, () => pod.sideEffect.enqueue('t:ok', 1));
    expect(spans('enqueue t:ok')[0]!.parentSpanContext?.spanId).toBe('b7ad6b7169203331');
    expect(await pod.jobs.findOne({})).toMatchObject({ trace_id: 'mine' });
  });

  it('an SDK that throws touches no run', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    trace.disable();
    trace.setGlobalTracerProvider({
      getTracer: () => {
        throw new Error('broken SDK');
      },
    });
    try {
      await pod.sideEffect.enqueue('t:ok', 1);
      await runAll();
      expect(pod.eventsOf('run_ended')).toMatchObject([{ result: 'success' }]);
    } finally {
      trace.disable();
      trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }));
    }
  });
});

describe('without any SDK', () => {
  it('a traceparent of the request goes through the row to the record as it came', async () => {
    const { requestContext } = await import('../../src/index.js');
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const sent: (string | undefined)[] = [];
    await boot({
      targets: [fast('kafka:o', (job) => Promise.resolve(sent.push(toRecord(job, 'o').headers['traceparent'])))],
    });
    await requestContext.run({ traceparent }, () => pod.sideEffect.enqueue('kafka:o', 1));
    await pod.sideEffect.enqueue('kafka:o', 2);
    expect(await pod.jobs.countDocuments({ traceparent })).toBe(1);
    await runAll();
    expect(sent).toHaveLength(2);
    expect(new Set(sent)).toEqual(new Set([traceparent, undefined]));
  });
});

describe('what must not be seen', () => {
  it('no log line, metric or health answer holds a payload, a key, a header or a password', async () => {
    const url = 'mongodb://root:MARKpass@db/x redis://:MARKpass@cache kafka://u:MARKpass@broker';
    const seen = (job: Job): string => `${'.'.repeat(200)} ${JSON.stringify(job)}`; // what handlers put into errors
    const failing = (name: string, make: (text: string) => unknown): JobTargetOptions =>
      fast(name, (job) => Promise.reject(make(`${url} ${seen(job)}`) as Error));
    await boot({
      jobs: { redis: { url: 'redis://:MARKpass@127.0.0.1:1' } },
      targets: [
        fast('t:ok', () => Promise.resolve('MARKpayload')),
        failing('t:no', (text) => new Error(text)),
        failing('t:bad', (text) => new JobRejected(text)),
        failing('t:away', (text) => new TargetUnreachable(text)),
        failing('t:lost', (text) => new TargetOutcomeUnknown(text)),
        {
          ...failing('t:dead', (text) => new JobRejected(text)),
          on_dead: (job) => Promise.reject(new Error(url + seen(job))),
        },
        { name: 'l:no', lane: 'long', handler: (job) => Promise.reject(new Error(url + seen(job))) },
        { name: 'x:lossy', lane: 'fast', lossy: true, handler: () => Promise.resolve() },
      ],
    });
    const secret = { key: 'MARKkey', headers: { authorization: 'MARKheader' } };
    for (const name of ['t:ok', 't:no', 't:bad', 't:away', 't:lost', 't:dead', 'l:no', 'x:lossy']) {
      await pod.sideEffect.enqueue(name, { card: 'MARKpayload' }, { ...secret, dedupe_key: `order:${name}` });
    }
    const refused = { card: 'MARKpayload', big: 1n };
    await expect(pod.sideEffect.enqueue('t:ok', refused, secret)).rejects.toThrow('payload');
    await runAll();
    const away = mongoose.createConnection('mongodb://root:MARKpass@127.0.0.1:1/?serverSelectionTimeoutMS=50');
    const gone = await away.asPromise().catch((error: unknown) => error);
    await away.destroy();
    emit({ type: 'loop_failed', loop: 'heartbeat', error: gone });
    emit({ type: 'loop_failed', loop: 'heartbeat', error: new Error(url) });
    pod.collections.jobs.aggregate = () => {
      throw new Error(url);
    };
    await app!.get(EngineHealth).runOnce();
    const health = await request(app!.getHttpServer()).get('/health');
    const all = [...logged, await scrape(), health.text].join('\n');
    expect(all).not.toContain('MARK');
    // The test would prove nothing if nothing had been said.
    expect(all).toContain('order:t:no');
    expect(all).toContain('***@');
    for (const msg of [
      'job run',
      'job dead alert',
      'target paused',
      'on_dead failed',
      'loop failed',
      'health problem',
    ]) {
      expect(all).toContain(`"msg":"${msg}`);
    }
  });

  it('every run is one line of JSON with the fields of the contract', async () => {
    await boot({ targets: [fast('t:ok', () => Promise.resolve())] });
    await pod.sideEffect.enqueue('t:ok', 1, { code: 'done', dedupe_key: 'order:1' });
    await runAll();
    const runs = logged.filter((line) => line.includes('job run'));
    expect(runs).toHaveLength(1);
    expect(JSON.parse(runs[0]!.slice(0, runs[0]!.lastIndexOf('}') + 1))).toEqual({
      msg: 'job run',
      code: 'done',
      target: 't:ok',
      dedupe_key: 'order:1',
      attempts: 0,
      duration_ms: 0,
      result: 'success',
    });
  });
});
