/**
 * Who may use the admin API, and what its input can do to the database: nothing. Every refusal is asserted over HTTP,
 * together with the commands that reached the database meanwhile: none.
 */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { ValidationPipe, type CanActivate, type ExecutionContext } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { of } from 'rxjs';
import { AdminTokensGuard } from '../../src/examples/admin_auth/admin_tokens.guard.js';
import { AdminApp, type AdminAppOptions } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';

const ID = '65f1c0ffee65f1c0ffee65f1';
const database = new TestDatabase();
const apps: AdminApp[] = [];

async function start(options: AdminAppOptions = {}): Promise<AdminApp> {
  const app = await AdminApp.start(database, options);
  apps.push(app);
  return app;
}

/** Every route that the application really serves. */
function routesOf({ app }: AdminApp): { method: string; path: string }[] {
  const { router } = app.getHttpAdapter().getInstance() as {
    router: { stack: { route?: { path: string; methods: Record<string, boolean> } }[] };
  };
  return router.stack.flatMap(({ route }) =>
    route ? Object.keys(route.methods).map((method) => ({ method, path: route.path })) : [],
  );
}

const call = (admin: AdminApp, method: string, path: string, role: string) => {
  const real = path.replace('/api/v1', '').replace(':id', ID).replace(':name', 'x');
  const body = { reason: 'r', ...(real.includes('/bulk/') && { filter: { code: 'c' } }) };
  return method === 'get' ? admin.get(real, role) : admin.post(real, body, role);
};

afterAll(async () => {
  for (const app of apps) await app.close();
  await database.drop();
});

describe('the routes', () => {
  it('are these, so a new one is met by the tests below', async () => {
    const routes = routesOf(await start()).map(({ method, path }) => `${method} ${path.replace('/api/v1', '')}`);
    expect(routes.sort()).toEqual([
      'get /audit',
      'get /jobs',
      'get /jobs/:id',
      'get /jobs/blocked',
      'get /jobs/stats',
      'get /partitions',
      'get /targets',
      'get /workers',
      'post /jobs/:id/cancel',
      'post /jobs/:id/retry',
      'post /jobs/:id/skip',
      'post /jobs/bulk/retry',
      'post /jobs/bulk/skip',
      'post /targets/:name/pause',
      'post /targets/:name/resume',
    ]);
  });
});

const refuses: CanActivate = { canActivate: () => Promise.resolve(false) };
const admits: CanActivate = { canActivate: () => of(true) };

describe.each<{ name: string; options: AdminAppOptions; role: string }>([
  { name: 'somebody who is not an administrator', options: {}, role: 'system_admin' },
  { name: 'an administrator, where no guard is configured', options: { guards: [] }, role: 'admin' },
  { name: 'an administrator whom the second guard refuses', options: { guards: [admits, refuses] }, role: 'admin' },
])('to $name', ({ options, role }) => {
  it('every route answers 403, and asks the database nothing', async () => {
    const admin = await start(options);
    const routes = routesOf(admin);
    expect(routes.length).toBeGreaterThan(0);
    for (const { method, path } of routes) {
      const commands = await admin.pod.commandsOf(async () => {
        const { status, body } = await call(admin, method, path, role);
        expect({ path, status, body }).toEqual({
          path,
          status: 403,
          body: { statusCode: 403, code: 'forbidden', message: [expect.any(String)] },
        });
      });
      expect({ path, commands }).toEqual({ path, commands: [] });
    }
  });
});

describe('guards', () => {
  it('let an administrator pass on every route', async () => {
    const admin = await start({ guards: [admits] });
    for (const { method, path } of routesOf(admin)) {
      const { status } = await call(admin, method, path, 'admin');
      expect({ path, passed: [200, 404].includes(status) }).toEqual({ path, passed: true });
    }
  });

  it('missing: the boot warns once, and says how to configure one', async () => {
    const warnings: string[] = [];
    const logger = { log: () => undefined, error: () => undefined, warn: (text: string) => void warnings.push(text) };
    await start({ guards: [], logger });
    const about = warnings.filter((text) => text.includes('admin'));
    expect(about).toHaveLength(1);
    expect(about[0]).toContain('JobsModule.forRoot({ admin: { guards: [YourAdminGuard] } })');
  });

  it('that cannot be built end the boot, not the protection', async () => {
    class Needy implements CanActivate {
      constructor(readonly missing: Map<string, string>) {}
      canActivate = (): boolean => true;
    }
    Reflect.defineMetadata('design:paramtypes', [Map], Needy);
    await expect(start({ guards: [Needy] })).rejects.toMatchObject({ code: 'admin_guard', field: 'jobs.admin.guards' });
  });

  it('of the sample: 401 without a token, 403 with another role, 200 with the role admin', async () => {
    process.env['ADMIN_TOKENS'] = 'ada:admin:token-of-ada-0001, bob:operator:token-of-bob-0001';
    const admin = await start({ guards: [AdminTokensGuard] });
    delete process.env['ADMIN_TOKENS'];
    const ask = (token?: string) => {
      const get = admin.get('/jobs');
      return token === undefined ? get : get.set('authorization', token);
    };
    for (const wrong of [
      undefined,
      'Bearer',
      'Bearer token-of-ada-000',
      'Basic token-of-ada-0001',
      'Bearer '.repeat(9),
    ]) {
      const { body } = await ask(wrong).expect(401);
      expect(body).toEqual({ statusCode: 401, code: 'unauthorized', message: ['a bearer token is needed'] });
    }
    await ask('Bearer token-of-bob-0001').expect(403);
    await ask('Bearer token-of-ada-0001').expect(200);
    const row = await admin.insert({ status: 'DEAD' });
    await admin
      .post(`/jobs/${row._id.toHexString()}/skip`)
      .set('authorization', 'Bearer token-of-ada-0001')
      .expect(200);
    expect((await admin.audit()).at(-1)).toMatchObject({ actor: 'ada', action: 'job.skip' });
  });

  it('of the sample refuse to start with a token that can be guessed', async () => {
    process.env['ADMIN_TOKENS'] = 'ada:admin:short';
    await expect(Test.createTestingModule({ providers: [AdminTokensGuard] }).compile()).rejects.toThrow('ADMIN_TOKENS');
    delete process.env['ADMIN_TOKENS'];
  });
});

const LONG = 'x'.repeat(10_000);
const QUERIES: [path: string, query: string][] = [
  ...['status', 'target', 'code', 'key', 'page', 'limit', 'cursor'].flatMap((name): [string, string][] => [
    ['/jobs', `${name}[$ne]=1`],
    ['/jobs', `${name}[$regex]=.*`],
    ['/jobs', `${name}[$gt]=&${name}[$lt]=z`],
    ['/jobs', `${name}[]=a`],
    ['/jobs', `${name}=a&${name}=b`],
    ['/jobs', `${name}[a][b][c]=1`],
    ['/jobs', `${name}=a%00b`],
    ['/jobs', `${name}=${LONG}`],
    ['/jobs', `${name}=`],
  ]),
  ['/jobs', 'status=dead'],
  ['/jobs', 'status={"$ne":"DEAD"}'],
  ['/jobs', 'stauts=DEAD'],
  ['/jobs', '$where=sleep(1000)'],
  ['/jobs', '__proto__[status]=DEAD'],
  ['/jobs', '__proto__=x'],
  ['/jobs', 'constructor=x'],
  ['/jobs', 'constructor[prototype][status]=DEAD'],
  ...['0', '-1', '101', '1e9', '1000000000', '1.5', '0x10', 'NaN', 'Infinity', ' 5', 'true'].map(
    (value): [string, string] => ['/jobs', `limit=${encodeURIComponent(value)}`],
  ),
  ...['0', '-1', '1e9', '999999999', '10001', '2.5', 'one'].map((value): [string, string] => [
    '/jobs',
    `page=${value}`,
  ]),
  ['/jobs', 'page=10000&limit=100'],
  ['/jobs', 'page=2&cursor=ZfHA_-5l8cD_7mXx'],
  ...['a', 'ZfHA_-5l8cD_7mX', 'ZfHA_-5l8cD_7mXxx', '%7B%7D', '$ne', 'ZfHA%2F-5l8cD_7mXx', ID].map(
    (value): [string, string] => ['/jobs', `cursor=${value}`],
  ),
  ['/audit', 'cursor[$gt]='],
  ['/audit', 'cursor=nonsense'],
  ['/audit', 'limit=1000'],
  ['/audit', 'actor=ada'],
  ['/jobs/blocked', 'target[$ne]='],
  ['/jobs/blocked', 'limit=0'],
  ...[
    'nonsense',
    '{}',
    '[]',
    '["t",1]',
    '["t",1,"k","x"]',
    '["t",-1,"k"]',
    '["t","1","k"]',
    '["t",1,{"$gt":""}]',
    '[{"$gt":""},1,"k"]',
    '["t",1,"a\\u0000b"]',
    `["t",1,"${LONG}"]`,
  ].map((value): [string, string] => ['/jobs/blocked', `cursor=${Buffer.from(value).toString('base64url')}`]),
];

const FILTERS: unknown[] = [
  undefined,
  null,
  'DEAD',
  7,
  [],
  [{ code: 'c' }],
  {},
  { status: 'DEAD' },
  { status: 'PENDING', code: 'c' },
  { cod: 'c' },
  { code: 'c', tagret: 't' },
  { code: null },
  { code: '' },
  { code: { $ne: null } },
  { code: { $regex: '.*' } },
  { code: ['c'] },
  { code: 'a\0b' },
  { code: LONG },
  { target: { $exists: true } },
  { key: { $gt: '' } },
  { key: true },
  { from: '2026-01-31T08:00:00Z' },
  { code: 'c', from: 'yesterday' },
  { code: 'c', from: { $gt: 0 } },
  { code: 'c', to: 0 },
  { code: 'c', to: '2026-99-99T99:99:99Z' },
  { ids: [] },
  { ids: 'all' },
  { ids: ['nonsense'] },
  { ids: [{ $ne: null }] },
  { ids: { $ne: [] } },
  { ids: Array.from({ length: 1001 }, () => ID) },
  { $or: [{}] },
  { code: 'c', $where: 'true' },
  JSON.parse('{"code":"c","__proto__":{"target":"t"}}'),
  JSON.parse('{"__proto__":{"code":"c"}}'),
];

const BODIES: [path: string, body: unknown][] = [
  ...['/jobs/bulk/retry', '/jobs/bulk/skip'].flatMap((path) =>
    FILTERS.map((filter): [string, unknown] => [path, { filter }]),
  ),
  ...[0, -1, 1.5, 1e9, '5', null, { $gt: 0 }, 101].map((limit): [string, unknown] => [
    '/jobs/bulk/skip',
    { filter: { code: 'c' }, limit },
  ]),
  ...['yes', 'true', 1, {}].map((dry_run): [string, unknown] => [
    '/jobs/bulk/skip',
    { filter: { code: 'c' }, dry_run },
  ]),
  ['/jobs/bulk/skip', []],
  ['/jobs/bulk/skip', { filter: { code: 'c' }, dryrun: true }],
  ['/jobs/bulk/skip', { filter: { code: 'c' }, reason: { $ne: 1 } }],
  ['/jobs/bulk/skip', JSON.parse(`${'{"a":'.repeat(50)}1${'}'.repeat(50)}`)],
  ...['retry', 'skip', 'cancel'].flatMap((action): [string, unknown][] => [
    [`/jobs/${ID}/${action}`, { reason: { $ne: '' } }],
    [`/jobs/${ID}/${action}`, { reason: LONG }],
    [`/jobs/${ID}/${action}`, { reason: 'a\0b' }],
    [`/jobs/${ID}/${action}`, { reason: '\ud800' }],
    [`/jobs/${ID}/${action}`, { status: 'PENDING' }],
    [`/jobs/${ID}/${action}`, ['reason']],
  ]),
  ...['pause', 'resume'].flatMap((action): [string, unknown][] => [
    [`/targets/orders%3Aship/${action}`, undefined],
    [`/targets/orders%3Aship/${action}`, {}],
    [`/targets/orders%3Aship/${action}`, { reason: '' }],
    [`/targets/orders%3Aship/${action}`, { reason: 5 }],
    [`/targets/orders%3Aship/${action}`, { reason: { $gt: '' } }],
    [`/targets/orders%3Aship/${action}`, { reason: 'r', state: 'open' }],
  ]),
];

const implicit = new ValidationPipe({
  transform: true,
  transformOptions: { enableImplicitConversion: true },
  validateCustomDecorators: true,
});

describe.each<{ host: string; setUp: NonNullable<AdminAppOptions['setUp']> }>([
  { host: 'the simple query parser', setUp: (app) => void app.set('query parser', 'simple') },
  {
    host: 'the extended query parser and a pipe that converts implicitly',
    setUp: (app) => {
      app.set('query parser', 'extended');
      app.useGlobalPipes(implicit);
    },
  },
])('with $host', ({ setUp }) => {
  let admin: AdminApp;
  beforeAll(async () => {
    admin = await start({ setUp, jobs: { admin: { bulk_limit: 100 } } });
    await admin.insertMany([{ status: 'DEAD', code: 'c' }, { code: 'c' }]);
  });

  const expect400 = async (ask: () => ReturnType<AdminApp['get']>): Promise<void> => {
    const before = await admin.pod.jobs.find().toArray();
    const commands = await admin.pod.commandsOf(async () => {
      const { status, body } = await ask();
      expect({ status, body }).toEqual({
        status: 400,
        body: { statusCode: 400, code: expect.stringMatching(/^invalid_(input|cursor)$/), message: expect.any(Array) },
      });
      expect(body.message.length).toBeGreaterThan(0);
      expect(JSON.stringify(body).length).toBeLessThan(7_000);
      for (const text of body.message) expect(typeof text).toBe('string');
    });
    expect(commands).toEqual([]);
    expect(await admin.pod.jobs.find().toArray()).toEqual(before);
  };

  it.each(QUERIES.map(([path, query]) => ({ path, query, shown: query.slice(0, 60) })))(
    'GET $path?$shown: 400, and no command',
    async ({ path, query }) => expect400(() => admin.get(`${path}?${query}`)),
  );

  it.each(BODIES.map(([path, body]) => ({ path, body, shown: JSON.stringify(body)?.slice(0, 60) })))(
    'POST $path $shown: 400, and no command',
    async ({ path, body }) => expect400(() => admin.post(path, body as object)),
  );

  it.each(['a%00b', 'nonsense', '%7B%22$ne%22:1%7D', ID.slice(1), `${ID}0`, LONG])(
    'an id that cannot be one is 404, and no command: %s',
    async (id) => {
      const commands = await admin.pod.commandsOf(async () => {
        for (const ask of [() => admin.get(`/jobs/${id}`), () => admin.post(`/jobs/${id}/retry`)]) {
          const { body } = await ask().expect(404);
          expect(body).toMatchObject({ statusCode: 404, code: 'not_found' });
        }
      });
      expect(commands).toEqual([]);
    },
  );

  it('takes operator texts for what they are: texts', async () => {
    for (const text of ['{"$ne":null}', '$ne', '.*', '$code']) {
      const { body } = await admin.get(`/jobs?code=${encodeURIComponent(text)}`).expect(200);
      expect(body).toMatchObject({ total: 0, data: [] });
    }
  });
});

it('a failure inside is answered 500 without a word of it', async () => {
  const broken: CanActivate = {
    canActivate: (_: ExecutionContext) => {
      throw new Error('mongodb://admin:secret@db failed');
    },
  };
  const admin = await start({ guards: [broken] });
  const { body } = await admin.get('/jobs').expect(500);
  expect(body).toEqual({ statusCode: 500, code: 'internal_error', message: ['the request failed'] });
});
