/** The admin routes of schedules over HTTP, with a real guard: shapes, states, errors, the audit, and what reaches the database. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import request from 'supertest';
import { SchedulesModule } from '../../src/schedules/schedules.module.js';
import { SCHEDULES_COLLECTIONS, type SchedulesCollections } from '../../src/schedules/schedules.store.js';
import { SchedulesTick } from '../../src/schedules/schedules_tick.js';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';
import { declares, Slots } from '../support/schedule_pod.js';

const HOUR = 3_600_000;
const database = new TestDatabase();
const slots = new Slots();
let admin: AdminApp;
let collections: SchedulesCollections;
let tick: SchedulesTick;

const hoursLater = (hours: number): string => {
  const now = admin.clock.now().getTime();
  return new Date(Math.floor(now / HOUR) * HOUR + hours * HOUR).toISOString();
};
const enable = (code: string) => admin.post(`/schedules/${code}/enable`);
const disable = (code: string) => admin.post(`/schedules/${code}/disable`);
const override = (code: string, body: object) =>
  request(admin.app.getHttpServer())
    .put(`/api/v1/schedules/${code}/cron_override`)
    .set('x-role', 'admin')
    .set('x-user', 'ada')
    .send(body);
const clearOverride = (code: string) =>
  request(admin.app.getHttpServer())
    .delete(`/api/v1/schedules/${code}/cron_override`)
    .set('x-role', 'admin')
    .set('x-user', 'ada');
const changes = async (): Promise<unknown[]> =>
  (await admin.audit()).map(({ actor, action, subject, count }) => [actor, action, subject, count]);

beforeAll(async () => {
  admin = await AdminApp.start(database, {
    imports: [SchedulesModule.forRoot({ timezone: 'UTC' })],
    providers: [declares([slots.declaration('hourly', '0 * * * *'), slots.declaration('daily', '0 9 * * *')])],
  });
  collections = admin.app.get<SchedulesCollections>(SCHEDULES_COLLECTIONS);
  tick = admin.app.get(SchedulesTick);
});
beforeEach(async () => {
  await collections.schedules.deleteMany({ code: { $nin: ['hourly', 'daily'] } });
  await collections.schedules.updateMany(
    {},
    { $set: { enabled: true, timezone: 'UTC' }, $unset: { cron_override: '', last_slot_at: '' } },
  );
  for (const [code, hours] of [
    ['hourly', 1],
    ['daily', 9],
  ] as const) {
    await collections.schedules.updateOne({ code }, { $set: { next_run_at: new Date(hoursLater(hours)) } });
  }
  await admin.pod.jobs.deleteMany({});
  await admin.pod.collections.audit.deleteMany({});
});
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

describe('GET /schedules', () => {
  it('answers every row by code, with what this pod thinks of it', async () => {
    await collections.schedules.insertOne({
      ...(await collections.schedules.findOne({ code: 'hourly' }, { projection: { _id: 0 } }))!,
      code: 'abandoned',
      cron_override: 'whenever',
    } as never);
    const { body } = await admin.get('/schedules').expect(200);
    expect(body).toMatchObject([
      { code: 'abandoned', orphaned: true, error: expect.stringContaining('whenever') },
      { code: 'daily', orphaned: false },
      {
        _id: expect.stringMatching(/^[0-9a-f]{24}$/),
        code: 'hourly',
        cron: '0 * * * *',
        timezone: 'UTC',
        enabled: true,
        missed_slot_policy: 'run_once',
        retry_count: 3,
        next_run_at: hoursLater(1),
        orphaned: false,
      },
    ]);
    expect(body[2]).not.toHaveProperty('error');
  });
});

describe('POST /schedules/:code/disable and enable', () => {
  it('switch new slots off and on; the first slot is the next after now, missed ones are dropped', async () => {
    const off = await disable('hourly').expect(200);
    expect(off.body).toMatchObject({ code: 'hourly', enabled: false });
    admin.clock.advance(5 * HOUR);
    await tick.tickOnce();
    expect(await admin.pod.jobs.countDocuments({ code: 'hourly' })).toBe(0);
    const on = await enable('hourly').expect(200);
    expect(on.body).toMatchObject({ enabled: true, next_run_at: hoursLater(1) });
    expect(await changes()).toEqual([
      ['ada', 'schedule.disable', 'hourly', 1],
      ['ada', 'schedule.enable', 'hourly', 1],
    ]);
  });

  it('change nothing and audit nothing when it is so already; enabling an enabled one keeps what is due', async () => {
    await disable('daily');
    await disable('daily').expect(200);
    const due = new Date(admin.clock.now().getTime() - 1000);
    await collections.schedules.updateOne({ code: 'hourly' }, { $set: { next_run_at: due } });
    const { body } = await enable('hourly').expect(200);
    expect(body.next_run_at).toBe(due.toISOString());
    expect(await changes()).toEqual([['ada', 'schedule.disable', 'daily', 1]]);
  });

  it('of a schedule whose expression cannot be read answer invalid_cron and leave it off', async () => {
    await collections.schedules.updateOne({ code: 'hourly' }, { $set: { enabled: false, cron_override: 'whenever' } });
    const { body } = await enable('hourly').expect(400);
    expect(body).toMatchObject({ statusCode: 400, code: 'invalid_cron' });
    expect(await collections.schedules.findOne({ code: 'hourly' })).toMatchObject({ enabled: false });
    expect(await changes()).toEqual([]);
  });

  it('twenty at once: one change, one row in the audit, every answer says disabled', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => disable('hourly')));
    const won = answers.filter(({ status }) => status === 200);
    expect(won.length).toBeGreaterThan(0);
    expect(won.every(({ body }) => (body as { enabled: boolean }).enabled === false)).toBe(true);
    expect(answers.filter(({ status }) => ![200, 409].includes(status))).toEqual([]);
    expect(await changes()).toHaveLength(1);
  });
});

describe('PUT and DELETE /schedules/:code/cron_override', () => {
  it('the next slot follows the override, and goes back with it', async () => {
    const set = await override('hourly', { cron_override: '30 */6 * * *' }).expect(200);
    const next = new Date(set.body.next_run_at as string);
    expect([next.getUTCHours() % 6, next.getUTCMinutes()]).toEqual([0, 30]);
    expect(set.body).toMatchObject({ cron: '0 * * * *', cron_override: '30 */6 * * *' });
    const cleared = await clearOverride('hourly').expect(200);
    expect(cleared.body).toMatchObject({ next_run_at: hoursLater(1) });
    expect(cleared.body).not.toHaveProperty('cron_override');
    expect(await changes()).toEqual([
      ['ada', 'schedule.override', 'hourly', 1],
      ['ada', 'schedule.clear_override', 'hourly', 1],
    ]);
  });

  it('taking away what is not there changes nothing', async () => {
    await clearOverride('hourly').expect(200);
    expect(await changes()).toEqual([]);
  });

  it('are read in the zone of the schedule', async () => {
    await collections.schedules.updateOne({ code: 'hourly' }, { $set: { timezone: '+07:00' } });
    const { body } = await override('hourly', { cron_override: '0 12 * * *' }).expect(200);
    expect(new Date(body.next_run_at as string).getUTCHours()).toBe(5);
  });

  it.each(['', '   ', '* * * *', '61 * * * *', '@daily', '0 0 30 2 *', 'a\0b * * * *', 'x'.repeat(10_000)])(
    'of the expression %j answers 400 invalid_cron and writes nothing',
    async (cron_override) => {
      const { body } = await override('hourly', { cron_override }).expect(400);
      expect(body).toMatchObject({ statusCode: 400, code: 'invalid_cron', message: [expect.any(String)] });
      expect(await collections.schedules.findOne({ code: 'hourly' })).not.toHaveProperty('cron_override');
      expect(await changes()).toEqual([]);
    },
  );

  it.each([
    [{}],
    [{ cron_override: null }],
    [{ cron_override: 5 }],
    [{ cron_override: { $ne: '' } }],
    [{ cron_override: ['* * * * *'] }],
    [{ cron_override: '0 * * * *', enabled: false }],
  ])('with the body %j answers 400, and no command reaches the database', async (body) => {
    const commands = await admin.pod.commandsOf(async () => {
      const answer = await override('hourly', body).expect(400);
      expect(answer.body).toMatchObject({ statusCode: 400, code: 'invalid_input' });
    });
    expect(commands).toEqual([]);
  });
});

describe('POST /schedules/:code/run_now', () => {
  it('enqueues one extra row beside the slots, also while disabled, and audits it', async () => {
    await disable('hourly');
    const { body } = await admin.post('/schedules/hourly/run_now').expect(200);
    expect(body).toEqual({
      code: 'hourly',
      slot: admin.clock.now().toISOString(),
      dedupe_key: expect.stringMatching(/^hourly:now:/),
    });
    expect(await admin.pod.jobs.find().toArray()).toMatchObject([
      { target: 'schedule:hourly', dedupe_key: body.dedupe_key, payload: { run_now: true } },
    ]);
    expect((await changes()).at(-1)).toEqual(['ada', 'schedule.run_now', 'hourly', 1]);
    const before = slots.runs.length;
    admin.clock.advance(10 * 60_000);
    await admin.pod.drain();
    expect(slots.runs.length - before).toBe(1);
  });

  it('of a schedule this pod cannot run answers 404', async () => {
    const row = await collections.schedules.findOne({ code: 'hourly' }, { projection: { _id: 0 } });
    await collections.schedules.insertOne({ ...row!, code: 'elsewhere' } as never);
    await admin.post('/schedules/elsewhere/run_now').expect(404);
    expect(await admin.pod.jobs.countDocuments()).toBe(0);
    expect(await changes()).toEqual([]);
  });
});

describe('a reason', () => {
  it.each([
    ['post', 'disable', {}, 'schedule.disable', {}],
    ['put', 'cron_override', { cron_override: '5 * * * *' }, 'schedule.override', { detail: '5 * * * *' }],
    ['delete', 'cron_override', {}, 'schedule.clear_override', {}],
    ['post', 'run_now', {}, 'schedule.run_now', {}],
    ['post', 'enable', {}, 'schedule.enable', {}],
  ] as const)('of %s %s is kept in the audit, with what was set', async (method, path, more, action, kept) => {
    const before = {
      ...(action === 'schedule.enable' && { enabled: false }),
      ...(action === 'schedule.clear_override' && { cron_override: '1 * * * *' }),
    };
    await collections.schedules.updateOne({ code: 'hourly' }, { $set: { timezone: 'UTC', ...before } });
    const answer = await call(method, `/schedules/hourly/${path}`, 'admin', { ...more, reason: 'stock-taking' });
    expect(answer.status).toBe(200);
    const row = { actor: expect.any(String), action, subject: 'hourly', count: 1, reason: 'stock-taking', ...kept };
    expect(await admin.audit()).toEqual([row]);
  });

  it.each([
    ['post', 'enable', { why: 'x' }],
    ['post', 'disable', { reason: 5 }],
    ['delete', 'cron_override', { reason: '' }],
    ['post', 'run_now', { reason: 'x', slot: '2030-01-01T00:00:00Z' }],
  ] as const)('of %s %s that is none (%j) answers 400 and changes nothing', async (method, path, body) => {
    const { code } = (await call(method, `/schedules/hourly/${path}`, 'admin', body).expect(400)).body as {
      code: string;
    };
    expect(code).toBe('invalid_input');
    expect(await changes()).toEqual([]);
  });
});

describe('GET /schedules/:code/preview', () => {
  it('answers the next slots; ten unless asked otherwise', async () => {
    const { body } = await admin.get('/schedules/hourly/preview?count=3').expect(200);
    expect(body).toEqual({
      code: 'hourly',
      cron: '0 * * * *',
      timezone: 'UTC',
      slots: [hoursLater(1), hoursLater(2), hoursLater(3)],
    });
    expect((await admin.get('/schedules/hourly/preview')).body.slots).toHaveLength(10);
  });

  it.each(['0', '-1', '101', '1e9', '', 'x', '1.5'])('with count=%s answers 400', async (count) => {
    const { body } = await admin.get(`/schedules/hourly/preview?count=${count}`).expect(400);
    expect(body).toMatchObject({ statusCode: 400, code: 'invalid_input' });
  });

  it.each(['count[$gt]=1', 'count=1&count=2', 'limit=5'])('with ?%s answers 400', async (query) => {
    await admin.get(`/schedules/hourly/preview?${query}`).expect(400);
  });
});

const ROUTES = [
  ['get', '/schedules', undefined],
  ['post', '/schedules/:code/enable', undefined],
  ['post', '/schedules/:code/disable', undefined],
  ['put', '/schedules/:code/cron_override', { cron_override: '0 * * * *' }],
  ['delete', '/schedules/:code/cron_override', undefined],
  ['post', '/schedules/:code/run_now', undefined],
  ['get', '/schedules/:code/preview', undefined],
] as const;
const call = (method: (typeof ROUTES)[number][0], path: string, role: string, body?: object) =>
  request(admin.app.getHttpServer())[method](`/api/v1${path}`).set('x-role', role).send(body);

describe('every route', () => {
  it.each(ROUTES)('%s %s answers 403 to anybody but an admin, and changes nothing', async (method, path, body) => {
    for (const role of ['user', 'system_admin', '']) {
      const answer = await call(method, path.replace(':code', 'hourly'), role, body).expect(403);
      expect(answer.body).toMatchObject({ statusCode: 403, code: 'forbidden', message: [expect.any(String)] });
    }
    expect(await changes()).toEqual([]);
    expect(await admin.pod.jobs.countDocuments()).toBe(0);
  });

  it.each(ROUTES.slice(1))('%s %s answers 404 for a code nobody has', async (method, path, body) => {
    for (const code of ['unknown', '%24ne', 'x%00y', 'a'.repeat(600)]) {
      const answer = await call(method, path.replace(':code', code), 'admin', body).expect(404);
      expect(answer.body).toMatchObject({ statusCode: 404, code: 'not_found', message: [expect.any(String)] });
    }
    expect(await changes()).toEqual([]);
  });

  it('a failed audit undoes the change', async () => {
    const { audit } = admin.pod.collections;
    const insertOne = audit.insertOne.bind(audit);
    audit.insertOne = (() => Promise.reject(new Error('full'))) as typeof audit.insertOne;
    try {
      await disable('hourly').expect(500);
      expect(await collections.schedules.findOne({ code: 'hourly' })).toMatchObject({ enabled: true });
    } finally {
      audit.insertOne = insertOne;
    }
  });
});
