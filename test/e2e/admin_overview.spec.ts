/** Counts, targets, blocked keys, partitions, workers and the audit through the admin API; and what they may cost. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';

const database = new TestDatabase();
let admin: AdminApp;

const TARGETS = [
  { name: 'orders:ship', lane: 'fast' as const, handler: async () => undefined },
  { name: 'reports:build', lane: 'long' as const, handler: async () => undefined },
  { name: 'a/b:c d'.replace(' ', '_'), lane: 'fast' as const, handler: async () => undefined },
];
const idOf = (row: { _id: { toHexString(): string } }): string => row._id.toHexString();
const none = { count: 0, at_least: false };
const some = (count: number) => ({ count, at_least: false });

beforeAll(async () => {
  admin = await AdminApp.start(database, { targets: TARGETS, jobs: { admin: { count_limit: 20 } } });
});
afterEach(async () => {
  admin.pod.events.length = 0;
  for (const name of ['jobs', 'audit', 'targets', 'workers'] as const) await admin.pod.collections[name].deleteMany({});
});
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

describe('GET /jobs/stats', () => {
  it('counts per status, and per status and target', async () => {
    await admin.insertMany([
      {},
      {},
      { status: 'DEAD' },
      { status: 'DONE' },
      { lane: 'long', target: 'reports:build' },
      { lane: 'long', target: 'reports:build', status: 'RUNNING' },
      { lane: 'long', target: 'unknown:long' },
      { target: 'unknown:fast' },
      { target: 'unknown:dead', status: 'DEAD' },
    ]);
    const names = await admin.pod.commandsOf(() => admin.get('/jobs/stats').expect(200));
    expect(names).toEqual(Array.from({ length: 4 }, () => 'aggregate'));
    const { body } = await admin.get('/jobs/stats').expect(200);
    expect(body).toMatchObject({ at: admin.clock.now().toISOString() });
    expect(body.statuses).toEqual({ PENDING: some(5), RUNNING: some(1), DEAD: some(2), DONE: some(1) });
    const byName = Object.fromEntries(body.targets.map((each: { name: string }) => [each.name, each]));
    expect(byName['orders:ship']).toEqual({
      name: 'orders:ship',
      known: true,
      counts: { PENDING: some(2), RUNNING: none, DEAD: some(1), DONE: some(1) },
    });
    expect(byName['reports:build']).toMatchObject({ known: true, counts: { PENDING: some(1), RUNNING: some(1) } });
    expect(byName['unknown:long']).toMatchObject({ known: false, counts: { PENDING: some(1) } });
    expect(byName['unknown:fast']).toMatchObject({ known: false, counts: { PENDING: some(1) } });
    expect(byName['unknown:dead']).toMatchObject({ known: false, counts: { DEAD: some(1) } });
    expect(byName['a/b:c_d']).toMatchObject({ known: true, counts: { PENDING: none } });
  });

  it('counts target by target where a backlog was cut, up to count_limit, and says so', async () => {
    await admin.insertMany([
      ...Array.from({ length: 40 }, () => ({ status: 'DEAD' as const })),
      ...Array.from({ length: 40 }, () => ({})),
      ...Array.from({ length: 40 }, () => ({ status: 'DONE' as const })),
      ...Array.from({ length: 20 }, () => ({ lane: 'long' as const, target: 'reports:build' })),
    ]);
    let body: { statuses: object; targets: { name: string; counts: object }[] } | undefined;
    const names = await admin.pod.commandsOf(async () => ({ body } = await admin.get('/jobs/stats').expect(200)));
    const namesThatWait = 2; // one in each lane, and that there are no more
    expect(names).toEqual(Array.from({ length: 4 + namesThatWait + 3 + 3 }, () => 'aggregate'));
    const cut = { count: 20, at_least: true };
    expect(body!.statuses).toEqual({ PENDING: cut, RUNNING: none, DEAD: cut, DONE: cut });
    const counts = Object.fromEntries(body!.targets.map((each) => [each.name, each.counts]));
    expect(counts['orders:ship']).toEqual({ PENDING: cut, RUNNING: none, DEAD: cut, DONE: cut });
    expect(counts['reports:build']).toMatchObject({ PENDING: some(20), DEAD: none });
  });
});

describe('a target whose rows are older than the newest ones that are looked at', () => {
  const newer = { target: 'orders:ship' };
  const countsOf = async (path: string, name: string): Promise<object | undefined> => {
    const { body } = await admin.get(path).expect(200);
    const all = (path === '/targets' ? body : body.targets) as { name: string; counts: object }[];
    return all.find((each) => each.name === name)?.counts;
  };

  it.each(['/jobs/stats', '/targets'])('has no exact zero of what was never counted: %s', async (path) => {
    await admin.insertMany(Array.from({ length: 5 }, () => ({ target: 'reports:build', status: 'DONE' as const })));
    await admin.insertMany(Array.from({ length: 40 }, () => ({ ...newer, status: 'DONE' as const })));
    const counts = await countsOf(path, 'reports:build');
    expect(counts).toEqual({ PENDING: none, RUNNING: none, DEAD: none, DONE: { count: 0, at_least: true } });
  });

  it.each(['/jobs/stats', '/targets'])('is listed while rows of it wait, though no pod knows it: %s', async (path) => {
    await admin.insertMany([{ target: 'gone:fast' }, { target: 'gone:long', lane: 'long' as const }]);
    await admin.insertMany(Array.from({ length: 40 }, () => newer));
    expect(await countsOf(path, 'gone:fast')).toMatchObject({ PENDING: some(1) });
    expect(await countsOf(path, 'gone:long')).toMatchObject({ PENDING: some(1) });
    expect(await countsOf(path, 'reports:build')).toMatchObject({ PENDING: none });
  });
});

describe('targets', () => {
  const of = async (name: string) =>
    ((await admin.get('/targets').expect(200)).body as { name: string }[]).find((target) => target.name === name);

  it('are listed with lane, mode, state and counts; names only rows or pauses have are there too', async () => {
    await admin.insertMany([{ target: 'gone:x' }, { status: 'DEAD' }]);
    const names = await admin.pod.commandsOf(() => admin.get('/targets').expect(200));
    expect(names).toEqual(['find', 'aggregate', 'aggregate', 'aggregate', 'aggregate']);
    expect(await of('orders:ship')).toEqual({
      name: 'orders:ship',
      known: true,
      lane: 'fast',
      delivery_mode: 'at_most_once',
      state: 'open',
      counts: { PENDING: none, RUNNING: none, DEAD: some(1), DONE: none },
    });
    expect(await of('gone:x')).toMatchObject({ known: false, state: 'open', counts: { PENDING: some(1) } });
    expect(await of('gone:x')).not.toHaveProperty('lane');
  });

  it.each(['orders:ship', 'a/b:c_d'])(
    '%s is paused and resumed with a reason, each once, and both are audited',
    async (name) => {
      const path = `/targets/${encodeURIComponent(name)}`;
      const { body } = await admin.post(`${path}/pause`, { reason: 'maintenance' }).expect(200);
      const since = admin.clock.now().toISOString();
      expect(body).toMatchObject({ name, state: 'paused', by: 'admin', actor: 'ada', reason: 'maintenance', since });
      expect(await of(name)).toMatchObject({ state: 'paused', reason: 'maintenance' });
      const again = await admin.post(`${path}/pause`, { reason: 'more' }).expect(409);
      expect(again.body).toMatchObject({ code: 'invalid_status' });

      expect((await admin.post(`${path}/resume`, { reason: 'done' }).expect(200)).body).toMatchObject({
        state: 'open',
      });
      await admin.post(`${path}/resume`, { reason: 'done' }).expect(409);
      expect(await admin.audit()).toEqual([
        { actor: 'ada', action: 'target.pause', subject: name, count: 1, reason: 'maintenance' },
        { actor: 'ada', action: 'target.resume', subject: name, count: 1, reason: 'done' },
      ]);
    },
  );

  it('of 10 pauses at once one wins', async () => {
    const pause = () => admin.post('/targets/orders%3Aship/pause', { reason: 'r' });
    const answers = await Promise.all(Array.from({ length: 10 }, pause));
    const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
    expect(statuses).toEqual([200, ...Array.from({ length: 9 }, () => 409)]);
    expect(await admin.audit()).toHaveLength(1);
  });

  it('nobody knows are 404, so a misspelt name is not paused silently; one that rows name can be', async () => {
    for (const name of ['orders:shipp', 'a%00b', 'x'.repeat(600)]) {
      const { body } = await admin.post(`/targets/${name}/pause`, { reason: 'r' }).expect(404);
      expect(body).toMatchObject({ statusCode: 404, code: 'not_found' });
    }
    expect(await admin.pod.collections.targets.countDocuments()).toBe(0);
    await admin.insert({ target: 'other:pod', status: 'DEAD' });
    await admin.post('/targets/other%3Apod/pause', { reason: 'r' }).expect(200);
    expect(await of('other:pod')).toMatchObject({ known: false, state: 'paused' });
  });

  it('paused by the engine are shown with its reason, and an admin may open them', async () => {
    const since = admin.clock.now();
    await admin.pod.collections.targets.insertOne({
      _id: 'orders:ship',
      state: 'paused',
      by: 'engine',
      reason: 'ECONNREFUSED',
      since,
    });
    expect(await of('orders:ship')).toMatchObject({ state: 'paused', by: 'engine', reason: 'ECONNREFUSED' });
    await admin.post('/targets/orders%3Aship/resume', { reason: 'it is back' }).expect(200);
  });
});

describe('GET /jobs/blocked', () => {
  const at = (ms: number): Date => new Date(admin.clock.now().getTime() + ms);
  const key = (name: string, more: object = {}) => ({ key: name, order_key: name, ...more });

  it('shows keys whose head waits: the head, until when, why, and how many wait behind it', async () => {
    const rows = await admin.insertMany([
      key('A', { version: 1, attempts: 2, next_run_at: at(60_000), last_error: '503' }),
      key('A', { version: 2, next_run_at: at(60_000) }),
      key('A', { version: 3 }),
      key('B', { version: 1 }), // due: it does not wait
      key('B', { version: 2, attempts: 1, next_run_at: at(60_000) }),
      key('C', { version: 9, run_at: at(5_000), next_run_at: at(5_000) }),
      { attempts: 1, next_run_at: at(60_000) }, // no key: nobody can wait behind it
      key('D', { status: 'DEAD' }),
      key('E', { lane: 'long', next_run_at: at(60_000) }),
    ]);
    const { body } = await admin.get('/jobs/blocked').expect(200);
    expect(body).toEqual({
      data: [
        {
          target: 'orders:ship',
          key: 'A',
          partition: 0,
          head: { _id: idOf(rows[0]!), code: 'ship', version: 1, attempts: 2, crashes: 0 },
          until: at(60_000).toISOString(),
          reason: 'retry',
          last_error: '503',
          followers: { count: 2, at_least: false },
        },
        expect.objectContaining({ key: 'C', reason: 'scheduled', followers: none, until: at(5_000).toISOString() }),
      ],
    });
  });

  it('looks at count_limit rows a request at most, and goes on by cursor over partitions and targets', async () => {
    const blocked = (name: string, more: object) => key(name, { attempts: 1, next_run_at: at(1_000), ...more });
    await admin.insertMany([
      ...Array.from({ length: 30 }, (_, version) => blocked('hot', { version })),
      ...Array.from({ length: 15 }, (_, index) => key(`open-${index}`)),
      blocked('zone', { partition: 0 }),
      blocked('far', { partition: 3 }),
      blocked('other', { target: 'z:z' }),
    ]);
    const keys: string[] = [];
    let hot: unknown;
    let cursor: string | undefined;
    let requests = 0;
    do {
      const before = requests++;
      const { body } = await admin.get(`/jobs/blocked?limit=2${cursor ? `&cursor=${cursor}` : ''}`).expect(200);
      expect(before).toBeLessThan(20);
      for (const each of body.data) keys.push(each.key);
      hot ??= body.data.find((each: { key: string }) => each.key === 'hot')?.followers;
      cursor = body.next_cursor;
    } while (cursor);
    expect(keys).toEqual(['hot', 'zone', 'far', 'other']);
    expect(hot).toEqual({ count: 19, at_least: true });

    const only = await admin.get('/jobs/blocked?target=z:z').expect(200);
    expect(only.body).toMatchObject({ data: [{ key: 'other' }] });
    const commands = await admin.pod.commandsOf(() => admin.get('/jobs/blocked').expect(200));
    expect(commands).toEqual(['find']);
  });
});

describe('a cursor of GET /jobs/blocked', () => {
  const waits = (target: string, name: string) => ({
    target,
    key: name,
    order_key: name,
    attempts: 1,
    next_run_at: new Date(admin.clock.now().getTime() + 60_000),
  });

  it('in another target than the one asked for is refused: it would list keys of the other', async () => {
    await admin.insertMany([waits('a:a', '1'), waits('a:a', '2'), waits('b:b', '1')]);
    const { body } = await admin.get('/jobs/blocked?target=a:a&limit=1').expect(200);
    const cursor = body.next_cursor as string;
    const refused = await admin.get(`/jobs/blocked?target=b:b&cursor=${cursor}`).expect(400);
    expect(refused.body).toMatchObject({ code: 'invalid_cursor' });
    for (const query of [`target=a:a&cursor=${cursor}`, `cursor=${cursor}`]) {
      const page = await admin.get(`/jobs/blocked?${query}`).expect(200);
      expect(page.body.data[0]).toMatchObject({ target: 'a:a', key: '2' });
    }
  });

  it('is taken back, however long the texts of its place become on the way', async () => {
    const target = '\u0001'.repeat(200);
    await admin.insertMany([waits(target, '\u0001'.repeat(500)), waits(target, '\u0002'.repeat(500))]);
    const { body } = await admin.get('/jobs/blocked?limit=1').expect(200);
    const next = await admin.get(`/jobs/blocked?limit=1&cursor=${body.next_cursor as string}`).expect(200);
    expect(next.body.data).toMatchObject([{ key: '\u0002'.repeat(500) }]);
  });
});

it('GET /partitions shows owners, leases and what is in flight, and no lease token', async () => {
  await admin.pod.leases.heartbeat();
  const row = await admin.insert({});
  const mark = {
    target: row.target,
    mode: 'at_most_once' as const,
    token: 'secret',
    ids: [row._id],
    at: admin.clock.now(),
  };
  await admin.pod.collections.partitions.updateOne({ partition: 0 }, { $set: { inflight: [mark] } });
  const { body } = await admin.get('/partitions').expect(200);
  expect(body).toHaveLength(4);
  expect(body[0]).toMatchObject({
    partition: 0,
    owned: true,
    owner: expect.any(String),
    lease_until: expect.any(String),
  });
  expect(body[0].inflight).toEqual([
    { target: 'orders:ship', mode: 'at_most_once', jobs: 1, at: admin.clock.now().toISOString() },
  ]);
  expect(JSON.stringify(body)).not.toMatch(/token|secret/);
  admin.clock.advance(60_000);
  expect((await admin.get('/partitions').expect(200)).body[0]).toMatchObject({ owned: false });
});

it('GET /workers shows pods, and which of them live', async () => {
  await admin.pod.leases.heartbeat();
  const { body } = await admin.get('/workers').expect(200);
  expect(body).toMatchObject([{ pod_id: expect.any(String), host: expect.any(String), live: true }]);
  admin.clock.advance(60_000);
  expect((await admin.get('/workers').expect(200)).body).toMatchObject([{ live: false }]);
});

it('GET /audit tells who did what, newest first, by pages', async () => {
  const rows = await admin.insertMany(Array.from({ length: 5 }, () => ({ status: 'DEAD' as const })));
  for (const row of rows) await admin.post(`/jobs/${idOf(row)}/skip`, { reason: `r${rows.indexOf(row)}` }).expect(200);
  const reasons: string[] = [];
  let cursor: string | undefined;
  do {
    const { body } = await admin.get(`/audit?limit=2${cursor ? `&cursor=${cursor}` : ''}`).expect(200);
    expect(body.data[0]).toMatchObject({ actor: 'ada', action: 'job.skip', at: admin.clock.now().toISOString() });
    reasons.push(...body.data.map((each: { reason: string }) => each.reason));
    cursor = body.next_cursor;
  } while (cursor);
  expect(reasons).toEqual(['r4', 'r3', 'r2', 'r1', 'r0']);
});
