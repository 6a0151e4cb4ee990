/** The sample application through HTTP: one change, one transaction, one event. Its lanes stand still; the rows are read. */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import { Test } from '@nestjs/testing';
import type { Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import type { Server } from 'node:http';
import request from 'supertest';
import { DELIVERY_ORDER_TOPICS } from '../../src/examples/delivery_order/delivery_order.events.js';
import { DeliveryOrderModule } from '../../src/examples/delivery_order/delivery_order.module.js';
import { DeliverySummaryService } from '../../src/examples/delivery_order/delivery_summary.service.js';
import { setUpHttp } from '../../src/examples/delivery_order/http.setup.js';
import { JobsModule, JobsWorkersModule, SchedulesModule, type SlotRun } from '../../src/index.js';
import { LongLaneWorker } from '../../src/jobs/lanes/long_lane.worker.js';
import { KafkaModule } from '../../src/kafka/kafka.module.js';
import { HeaderRoleGuard } from '../support/admin_app.js';

const ORDERS = '/api/v1/delivery-orders';

let app: INestApplication<Server>;
let connection: Connection;

const order = (delivery_no: string, more: object = {}): object => ({
  delivery_no,
  channel: 'retail',
  recipient: 'Ada Brown',
  items: [{ sku: 'TEA-250G', quantity: 2 }],
  ...more,
});
const post = (body: object) => request(app.getHttpServer()).post(ORDERS).send(body);
const patch = (delivery_no: string, status: string) =>
  request(app.getHttpServer()).patch(`${ORDERS}/${delivery_no}/status`).send({ status });

const statusesOf = (answers: readonly { status: number }[]): number[] =>
  answers.map(({ status }) => status).sort((a, b) => a - b);

/** All that the database has of one order. */
async function rowsOf(delivery_no: string) {
  const all = (name: string, filter: object, sort: string) =>
    connection
      .collection(name)
      .find(filter)
      .sort({ [sort]: 1 })
      .toArray();
  return {
    orders: await all('delivery_orders', { delivery_no }, 'version'),
    logs: await all('delivery_activity_logs', { delivery_no }, 'version'),
    jobs: await all('jobs', { key: delivery_no }, 'version'),
  };
}

beforeAll(async () => {
  const dbName = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
  const module = await Test.createTestingModule({
    imports: [
      MongooseModule.forRoot(process.env['MONGO_URI']!, { dbName }),
      JobsModule.forRoot({ workers: 'manual', partitions: 4, admin: { guards: [HeaderRoleGuard] } }),
      SchedulesModule.forRoot({}),
      KafkaModule.forRoot({ topics: DELIVERY_ORDER_TOPICS }),
      DeliveryOrderModule,
      JobsWorkersModule,
    ],
  })
    .setLogger({ log: () => undefined, error: () => undefined, warn: () => undefined })
    .compile();
  app = module.createNestApplication();
  setUpHttp(app);
  await app.listen(0, '127.0.0.1');
  connection = app.get(getConnectionToken());
});

afterAll(async () => {
  await connection?.dropDatabase();
  await app?.close();
});

describe('a new delivery order', () => {
  it.each([
    ['retail', 'DO-R1'],
    ['wholesale', 'DO-W1'],
  ])('of channel %s is written with its log and the job for its topic', async (channel, delivery_no) => {
    const { body } = await post(order(delivery_no, { channel })).expect(201);
    expect(body).toMatchObject({ delivery_no, channel, status: 'created', version: 1 });

    const rows = await rowsOf(delivery_no);
    expect(rows).toMatchObject({
      orders: [{ delivery_no, channel, status: 'created', version: 1, items: [{ sku: 'TEA-250G', quantity: 2 }] }],
      logs: [{ delivery_no, status: 'created', version: 1 }],
      jobs: [
        {
          target: `kafka:delivery-orders-${channel}`,
          code: `delivery_order_changed_${channel}`,
          key: delivery_no,
          version: 1,
          dedupe_key: `delivery_order_changed_${channel}:${delivery_no}:1`,
          status: 'PENDING',
        },
      ],
    });
    const event_id = rows.logs[0]!['event_id'] as string;
    expect(rows.jobs[0]).toMatchObject({
      headers: { event_id },
      payload: { event_id, delivery_no, status: 'created' },
    });
  });

  it('is refused with 409 when its number exists, and leaves the first one alone', async () => {
    await post(order('DO-TWICE')).expect(201);
    const before = await rowsOf('DO-TWICE');
    await post(order('DO-TWICE', { channel: 'wholesale' })).expect(409);
    expect(await rowsOf('DO-TWICE')).toEqual(before);
    expect((await patch('DO-TWICE', 'picked').expect(200)).body).toMatchObject({ version: 2 });
  });

  it('is made once by two requests at the same time', async () => {
    const answers = await Promise.all([post(order('DO-RACE')), post(order('DO-RACE'))]);
    expect(statusesOf(answers)).toEqual([201, 409]);
    const { orders, logs, jobs } = await rowsOf('DO-RACE');
    expect([orders.length, logs.length, jobs.length]).toEqual([1, 1, 1]);
  });

  it('leaves no row at all when a later write of its transaction fails', async () => {
    const stray = { delivery_no: 'DO-FAIL', version: 1, status: 'created' };
    const { insertedId } = await connection.collection('delivery_activity_logs').insertOne(stray);
    await post(order('DO-FAIL')).expect(500);
    const rows = await rowsOf('DO-FAIL');
    expect(rows).toMatchObject({ orders: [], jobs: [] });
    expect(rows.logs.map(({ _id }) => _id)).toEqual([insertedId]);

    await connection.collection('delivery_activity_logs').deleteOne({ _id: insertedId });
    expect((await post(order('DO-FAIL')).expect(201)).body).toMatchObject({ version: 1 });
  });

  it.each<[string, object]>([
    ['no number', { delivery_no: undefined }],
    ['a number with a blank', { delivery_no: 'DO 1' }],
    ['an unknown channel', { channel: 'street' }],
    ['no items', { items: [] }],
    ['an item of quantity 0', { items: [{ sku: 'TEA-250G', quantity: 0 }] }],
    ['a field nobody knows', { status: 'delivered' }],
  ])('with %s is refused with 400', async (_what, fault) => {
    await post(order('DO-INVALID', fault)).expect(400);
    expect(await rowsOf('DO-INVALID')).toEqual({ orders: [], logs: [], jobs: [] });
  });
});

describe('a change of status', () => {
  it('makes one log and one job each, versions 1, 2, 3', async () => {
    await post(order('DO-LIFE')).expect(201);
    await patch('DO-LIFE', 'picked').expect(200);
    const { body } = await patch('DO-LIFE', 'shipped').expect(200);
    expect(body).toMatchObject({ status: 'shipped', version: 3 });
    expect((await request(app.getHttpServer()).get(`${ORDERS}/DO-LIFE`).expect(200)).body).toEqual(body);

    const { orders, logs, jobs } = await rowsOf('DO-LIFE');
    expect(orders).toMatchObject([{ status: 'shipped', version: 3 }]);
    expect(logs.map(({ version, previous_status, status }) => [version, previous_status, status])).toEqual([
      [1, undefined, 'created'],
      [2, 'created', 'picked'],
      [3, 'picked', 'shipped'],
    ]);
    expect(jobs.map(({ version, payload }) => [version, (payload as { status: string }).status])).toEqual([
      [1, 'created'],
      [2, 'picked'],
      [3, 'shipped'],
    ]);
  });

  it('that is illegal is refused with 409 and leaves no row, nor a gap in the versions', async () => {
    await post(order('DO-ILLEGAL')).expect(201);
    const before = await rowsOf('DO-ILLEGAL');
    await patch('DO-ILLEGAL', 'delivered').expect(409);
    expect(await rowsOf('DO-ILLEGAL')).toEqual(before);
    expect((await patch('DO-ILLEGAL', 'picked').expect(200)).body).toMatchObject({ version: 2 });
  });

  it('happens once for two requests at the same time', async () => {
    await post(order('DO-BOTH')).expect(201);
    const answers = await Promise.all([patch('DO-BOTH', 'picked'), patch('DO-BOTH', 'picked')]);
    expect(statusesOf(answers)).toEqual([200, 409]);
    const { logs, jobs } = await rowsOf('DO-BOTH');
    expect([logs.length, jobs.length]).toEqual([2, 2]);
  });

  it('of an unknown order is 404', async () => {
    await patch('DO-NOBODY', 'picked').expect(404);
    await request(app.getHttpServer()).get(`${ORDERS}/DO-NOBODY`).expect(404);
  });

  it('to a status nobody knows is 400', async () => {
    await patch('DO-LIFE', 'eaten').expect(400);
  });
});

describe('the daily summary', () => {
  const RUN_NOW = '/api/v1/schedules/daily_delivery_summary/run_now';
  const summaries = () => connection.collection('delivery_summaries').find({}).toArray();

  it('counts the changes of the 24 hours before it, once for every run that an admin asks for', async () => {
    await post(order('DO-COUNTED')).expect(201);
    const changes = await connection.collection('delivery_activity_logs').countDocuments({});
    const old = { delivery_no: 'DO-OLD', version: 1, status: 'created', event_id: 'e', occurred_at: new Date(0) };
    const { insertedId } = await connection.collection('delivery_activity_logs').insertOne(old);
    const asked = await request(app.getHttpServer()).post(RUN_NOW).set('x-role', 'admin').expect(200);
    await app.get(LongLaneWorker).runOnce();

    const { slot } = asked.body as { slot: string };
    expect(await summaries()).toMatchObject([{ until: new Date(slot), changes }]);
    expect(await connection.collection('jobs').countDocuments({ code: 'daily_delivery_summary' })).toBe(0);
    await connection.collection('delivery_activity_logs').deleteOne({ _id: insertedId });
  });

  it('of a slot that runs a second time replaces what the first run wrote', async () => {
    const [first] = await summaries();
    const until = first!['until'] as Date;
    await connection.collection('delivery_summaries').updateOne({ until }, { $set: { changes: -1 } });
    await app.get(DeliverySummaryService).summarize({ slot: until } as SlotRun);
    const again = await summaries();
    expect(again).toHaveLength(1);
    expect(again[0]!['changes']).toBeGreaterThan(0);
  });

  it('is not run for somebody who is no administrator', async () => {
    await request(app.getHttpServer()).post(RUN_NOW).expect(403);
  });
});

it('describes itself as OpenAPI', async () => {
  await request(app.getHttpServer()).get('/api/docs').expect(200);
  const { body } = await request(app.getHttpServer()).get('/api/docs-json').expect(200);
  const paths = Object.keys((body as { paths: object }).paths);
  expect(paths.filter((path) => path.startsWith(ORDERS))).toEqual([
    ORDERS,
    `${ORDERS}/{delivery_no}`,
    `${ORDERS}/{delivery_no}/status`,
  ]);
});
