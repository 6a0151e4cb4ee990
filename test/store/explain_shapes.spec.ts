/**
 * The commands of a whole application at work, lanes, admin routes, schedules, health and metrics, are of no shape that the
 * plans in `explain.spec.ts` do not cover: a query that somebody adds, or changes, without its plan fails here.
 */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { connect, databaseName, dropAndClose } from '../../scripts/bench/database.js';
import { ENGINE_QUERIES } from '../../scripts/bench/engine_queries.js';
import { loadForPlans } from '../../scripts/bench/queries/loaded.js';
import { caught, type Command } from '../../scripts/bench/query_plans.js';
import { shapesOf } from '../../scripts/bench/query_shapes.js';
import {
  EngineHealth,
  JobRejected,
  MetricsModule,
  SchedulesModule,
  TargetUnreachable,
  inTransaction,
} from '../../src/index.js';
import { RetentionWorker } from '../../src/jobs/lanes/retention.worker.js';
import { SchedulesTick } from '../../src/schedules/schedules_tick.js';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';
import { declares, Slots } from '../support/schedule_pod.js';

const OURS = /^(jobs|job_\w+|schedules)$/;
const HOUR_MS = 3_600_000;
const LOAD_MS = 120_000;
const database = new TestDatabase();
const slots = new Slots();
const known = new Set<string>();
let admin: AdminApp;

beforeAll(async () => {
  const connection = await connect(process.env['MONGO_URI']!, databaseName('shapes'));
  const loaded = await loadForPlans(connection, 150);
  for (const { run } of ENGINE_QUERIES) add(known, await caught(connection, () => run(loaded)));
  await dropAndClose(connection);
  admin = await AdminApp.start(database, {
    imports: [SchedulesModule.forRoot({ timezone: 'UTC' }), MetricsModule.forRoot()],
    providers: [declares([slots.declaration('hourly', '0 * * * *'), slots.declaration('daily', '0 9 * * *')])],
    targets: [
      { name: 'orders:ship', lane: 'fast', delivery_mode: 'at_least_once', handler: work },
      {
        name: 'orders:once',
        lane: 'fast',
        handler: work,
        keep_done_ms: 1_000,
        keep_dead_ms: 1_000,
        on_dead: async () => undefined,
      },
      {
        name: 'reports:build',
        lane: 'long',
        handler: work,
        rate_limit: { key: () => 'k', limit: 50, window_ms: 1_000 },
      },
      { name: 'reports:alone', lane: 'long', handler: work, exclusive: true },
    ],
  });
}, LOAD_MS);
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

async function work({ payload }: { payload: unknown }, ctx: { complete?(w: () => Promise<unknown>): Promise<void> }) {
  const { fate } = payload as { fate?: string };
  if (fate === 'fails') throw new Error('no');
  if (fate === 'rejected') throw new JobRejected('never');
  if (fate === 'down') throw new TargetUnreachable('down');
  if (fate === 'completes') await ctx.complete!(async () => undefined);
}

function add(shapes: Set<string>, commands: readonly { name: string; command: Command }[]): void {
  for (const { name, command } of commands) {
    if (OURS.test(String(command[name]))) for (const shape of shapesOf(name, command)) shapes.add(shape);
  }
}

/** The shapes of what `act` sent that no plan covers. */
async function unknownOf(act: () => Promise<unknown>): Promise<string[]> {
  const sent = new Set<string>();
  add(sent, await caught(admin.pod.connection, act));
  expect(sent.size).toBeGreaterThan(0);
  return [...sent].filter((shape) => !known.has(shape));
}

/** The leases are over by then: the first heartbeat learns it, the second takes them anew. */
async function later(ms: number): Promise<void> {
  admin.clock.advance(ms);
  for (let beat = 0; beat < 2; beat++) await admin.pod.leases.heartbeat();
}

describe('no shape without its plan', () => {
  it('of enqueues', async () => {
    const { sideEffect, connection } = admin.pod;
    const keys = ['one', 'two', 'three'];
    const unknown = await unknownOf(async () => {
      await sideEffect.enqueue('orders:ship', { fate: 'fails' }, { key: 'A', dedupe_key: 'alone' });
      await sideEffect.enqueue('orders:ship', {}, { key: 'A', version: 1 });
      await sideEffect.enqueue('reports:alone', {}, { code: 'monthly' });
      await inTransaction(connection, async (tx) => {
        const version = await sideEffect.nextVersion('A', tx);
        await sideEffect.enqueue('orders:once', { fate: 'rejected' }, { version, dedupe_key: 'keyed' }, tx);
        const items = keys.map((dedupe_key) => ({ target: 'orders:ship', payload: {}, dedupe_key }));
        await sideEffect.enqueueMany(items, tx);
        await sideEffect.enqueueMany(
          ['fails', 'rejected', 'completes', ''].map((fate) => ({ target: 'reports:build', payload: { fate } })),
          tx,
        );
      });
    });
    expect(unknown).toEqual([]);
  });

  it('of heartbeats and both lanes', async () => {
    expect(
      await unknownOf(async () => {
        await admin.pod.leases.heartbeat();
        await admin.pod.drain();
        await later(2 * 60_000);
        await admin.pod.drain();
        await admin.pod.sweeper.sweep();
        await admin.pod.keeper.look();
        await admin.pod.module.get(RetentionWorker).runOnce();
      }),
    ).toEqual([]);
  });

  it('of a pause, its probe and its end', async () => {
    await admin.pod.sideEffect.enqueue('orders:ship', { fate: 'down' }, { key: 'B' });
    await admin.pod.sideEffect.enqueue('orders:ship', {}, { key: 'C' });
    expect(
      await unknownOf(async () => {
        await admin.pod.leases.heartbeat();
        for (let round = 0; round < 4; round++) {
          await admin.pod.lane.runOnce();
          await later(60_000);
          await admin.pod.pause.refresh();
        }
      }),
    ).toEqual([]);
  });

  it('of an expired claim', async () => {
    const past = new Date(admin.clock.now().getTime() - HOUR_MS);
    const claim = { lane: 'long', status: 'RUNNING', claimed_by: 'gone', claim_token: 't', lease_until: past } as const;
    await admin.insertMany([
      { ...claim, target: 'reports:build' },
      { ...claim, target: 'reports:build', cancel_requested: { at: past, by: 'ada', reason: 'no' } },
    ]);
    expect(await unknownOf(() => admin.pod.sweeper.sweep())).toEqual([]);
  });

  it('of ticks', async () => {
    const tick = admin.app.get(SchedulesTick);
    expect(
      await unknownOf(async () => {
        await later(2 * HOUR_MS);
        await tick.tickOnce();
        await admin.pod.drain();
      }),
    ).toEqual([]);
  });

  it('of the admin routes', async () => {
    const rows = await admin.insertMany([
      ...Array.from({ length: 6 }, () => ({ status: 'DEAD' as const, key: 'K' })),
      { key: 'W', next_run_at: new Date(admin.clock.now().getTime() + HOUR_MS) },
      { lane: 'long', target: 'reports:build', status: 'RUNNING', claim_token: 'x' },
    ]);
    const [first, second] = rows.map(({ _id }) => _id.toHexString());
    const filters = [
      '',
      'status=DEAD',
      'status=DEAD&target=orders:ship',
      'key=K',
      'status=PENDING&code=ship',
      'target=x:y',
    ];
    const unknown = await unknownOf(async () => {
      for (const filter of filters) await admin.get(`/jobs?limit=2&${filter}`).expect(200);
      await admin.get(`/jobs/${first}`).expect(200);
      await admin.post(`/jobs/${first}/retry`, {}).expect(200);
      await admin.post(`/jobs/${second}/skip`, {}).expect(200);
      await admin.post(`/jobs/${rows.at(-2)!._id.toHexString()}/cancel`, {}).expect(200);
      await admin.post(`/jobs/${rows.at(-1)!._id.toHexString()}/cancel`, {}).expect(202);
      await admin.post('/jobs/bulk/retry', { filter: { key: 'K' }, limit: 1 }).expect(200);
      await admin
        .post('/jobs/bulk/skip', { filter: { target: 'orders:ship', from: '2020-01-01T00:00:00Z' } })
        .expect(200);
      await admin.post('/jobs/bulk/skip', { filter: { ids: [first] } }).expect(200);
      for (const path of ['targets', 'jobs/stats', 'jobs/blocked', 'partitions', 'workers', 'audit', 'schedules']) {
        await admin.get(`/${path}`).expect(200);
      }
      await admin.post('/targets/orders:ship/pause', { reason: 'rest' }).expect(200);
      await admin.post('/targets/orders:ship/resume', { reason: 'on' }).expect(200);
      for (const action of ['disable', 'enable']) await admin.post(`/schedules/daily/${action}`).expect(200);
    });
    expect(unknown).toEqual([]);
  });

  it('of health and metrics', async () => {
    expect(
      await unknownOf(async () => {
        await admin.app.get(EngineHealth).runOnce();
        await later(2 * 60_000);
        await admin.app.get(EngineHealth).runOnce();
        await admin.get('/metrics');
      }),
    ).toEqual([]);
  });
});
