/** One job through the admin API: list, detail, retry, skip, cancel. A real server, a real guard, a real database. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';

const database = new TestDatabase();
const sent: string[] = [];
let fail = false;
/** Called once, by the next send, before it ends. */
let whileSending: (() => Promise<void>) | undefined;
let admin: AdminApp;

const TARGETS = [
  {
    name: 'orders:ship',
    lane: 'fast' as const,
    max_attempts: 1,
    redact: ['card.number', 'items.*.pin'],
    handler: async (job: { id: string }) => {
      if (fail) throw new Error('no');
      const work = whileSending;
      whileSending = undefined;
      await work?.();
      sent.push(job.id);
    },
  },
  { name: 'reports:build', lane: 'long' as const, handler: async () => undefined },
];

/** Grows only: pods remember what they saw. */
const revs = async (): Promise<number[]> =>
  (await admin.pod.collections.partitions.find({}, { sort: { partition: 1 } }).toArray()).map(({ rev }) => rev ?? 0);
const idOf = (row: { _id: { toHexString(): string } }): string => row._id.toHexString();
const statusesOf = (answers: readonly { status: number }[]): number[] =>
  answers.map(({ status }) => status).sort((a, b) => a - b);

beforeAll(async () => {
  admin = await AdminApp.start(database, { targets: TARGETS, jobs: { admin: { count_limit: 50 } } });
});
afterEach(async () => {
  fail = false;
  whileSending = undefined;
  sent.length = 0;
  admin.pod.events.length = 0;
  await admin.pod.jobs.deleteMany({});
  await admin.pod.collections.audit.deleteMany({});
  await admin.pod.collections.partitions.updateMany({}, { $set: { inflight: [] } });
});
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

describe('GET /jobs', () => {
  it('lists newest first, without payload and history, with the id and the paging', async () => {
    const rows = await admin.insertMany([
      { status: 'DEAD', last_error: 'no', history: [] },
      { key: 'K' },
      { lane: 'long', target: 'reports:build' },
    ]);
    const { body } = await admin.get('/jobs').expect(200);
    expect(body).toMatchObject({ total: 3, total_at_least: false, page: 1, limit: 100 });
    expect(body.data.map((row: { _id: string }) => row._id)).toEqual(rows.map(idOf).reverse());
    expect(JSON.stringify(body)).not.toContain('never in a list');
    expect(body.data[0]).not.toHaveProperty('payload');
    expect(body.data[2]).not.toHaveProperty('history');
    expect(body.data[2]).toMatchObject({ status: 'DEAD', last_error: 'no', dedupe_key: idOf(rows[0]!) });
    expect(body).not.toHaveProperty('next_cursor');
  });

  it.each([
    ['status', 'DEAD', 2],
    ['target', 'reports:build', 1],
    ['code', 'other', 1],
    ['key', 'K', 2],
  ])('narrows by %s', async (name, value, count) => {
    await admin.insertMany([
      { status: 'DEAD', key: 'K', version: 1 },
      { status: 'DEAD', code: 'other' },
      { key: 'K', version: 2 },
      { lane: 'long', target: 'reports:build' },
    ]);
    const { body } = await admin.get(`/jobs?${name}=${encodeURIComponent(value)}`).expect(200);
    expect([body.data.length, body.total]).toEqual([count, count]);
    for (const row of body.data as Record<string, unknown>[]) expect(row[name]).toBe(value);
  });

  it('narrows by all at once', async () => {
    await admin.insertMany([
      { status: 'DEAD', key: 'K', code: 'a' },
      { status: 'DEAD', key: 'K', code: 'b' },
    ]);
    const { body } = await admin.get('/jobs?status=DEAD&target=orders:ship&code=a&key=K').expect(200);
    expect(body).toMatchObject({ total: 1, data: [{ code: 'a' }] });
  });

  it('gives every row once, by page and by cursor, also while rows are added', async () => {
    const rows = await admin.insertMany(Array.from({ length: 7 }, () => ({})));
    const expected = rows.map(idOf).reverse();
    const byPage: string[] = [];
    for (const page of [1, 2, 3]) {
      const { body } = await admin.get(`/jobs?limit=3&page=${page}`).expect(200);
      expect(body).toMatchObject({ page, limit: 3, total: 7 });
      byPage.push(...body.data.map((row: { _id: string }) => row._id));
    }
    expect(byPage).toEqual(expected);

    const byCursor: string[] = [];
    let cursor: string | undefined;
    do {
      const { body } = await admin.get(`/jobs?limit=3${cursor ? `&cursor=${cursor}` : ''}`).expect(200);
      byCursor.push(...body.data.map((row: { _id: string }) => row._id));
      cursor = body.next_cursor;
      await admin.insert({});
    } while (cursor);
    expect(byCursor).toEqual(expected);
  });

  it('tells a total beyond count_limit as "at least", and looks at no more rows', async () => {
    await admin.insertMany(Array.from({ length: 60 }, () => ({ status: 'DEAD' as const })));
    const { body } = await admin.get('/jobs?status=DEAD&limit=1').expect(200);
    expect(body).toMatchObject({ total: 50, total_at_least: true });
    expect((await admin.get('/jobs?status=DEAD&key=none').expect(200)).body).toMatchObject({
      total: 0,
      total_at_least: true,
    });
    expect((await admin.get('/jobs?status=PENDING').expect(200)).body).toMatchObject({
      total: 0,
      total_at_least: false,
    });
  });

  it.each([
    ['', 'key=K'],
    ['status=PENDING', 'key=K'],
    ['status=DEAD', 'target=orders:ship&key=K'],
  ])('looks at count_limit rows a request where no index narrows (%s), and goes on by cursor', async (status, rest) => {
    const rows = status === 'status=DEAD' ? { status: 'DEAD' as const } : {};
    const [wanted] = await admin.insertMany([{ ...rows, key: 'K' }]);
    await admin.insertMany(Array.from({ length: 120 }, () => rows));
    const pages: unknown[][] = [];
    let cursor: string | undefined;
    do {
      const { body } = await admin.get(`/jobs?${status}&${rest}${cursor ? `&cursor=${cursor}` : ''}`).expect(200);
      pages.push(body.data.map((row: { _id: string }) => row._id));
      cursor = body.next_cursor;
    } while (cursor);
    expect(pages).toEqual([[], [], [idOf(wanted!)]]);
  });

  it('ends without a cursor where all rows were looked at, full page or not', async () => {
    await admin.insertMany(Array.from({ length: 10 }, (_, i) => ({ key: i < 4 ? 'K' : 'other' })));
    for (const limit of [3, 4, 5]) {
      const { body } = await admin.get(`/jobs?key=K&limit=${limit}`).expect(200);
      expect([body.data.length, 'next_cursor' in body]).toEqual([Math.min(limit, 4), limit === 3]);
    }
  });

  it('costs two commands', async () => {
    await admin.insertMany([{}, { status: 'DEAD' }]);
    const names = await admin.pod.commandsOf(() => admin.get('/jobs?status=DEAD').expect(200));
    expect(names.sort()).toEqual(['aggregate', 'find']);
  });
});

describe('GET /jobs/:id', () => {
  it('shows payload, headers, progress and history in one command, with secret parts masked', async () => {
    const at = admin.clock.now();
    const row = await admin.insert({
      payload: {
        card: { number: '4111', name: 'Ada' },
        items: [
          { sku: 'T', pin: '1' },
          { sku: 'U', pin: '2' },
        ],
      },
      headers: { event_id: 'e-1' },
      progress: { percent: 40, at },
      history: [{ at, pod: 'p', ms: 5, class: 'answered', error: 'no' }],
    });
    let body: unknown;
    const names = await admin.pod.commandsOf(async () => {
      ({ body } = await admin.get(`/jobs/${idOf(row)}`).expect(200));
    });
    expect(names).toEqual(['find']);
    expect(body).toMatchObject({
      _id: idOf(row),
      payload: {
        card: { number: '[redacted]', name: 'Ada' },
        items: [
          { sku: 'T', pin: '[redacted]' },
          { sku: 'U', pin: '[redacted]' },
        ],
      },
      headers: { event_id: 'e-1' },
      progress: { percent: 40 },
      history: [{ pod: 'p', ms: 5, class: 'answered', error: 'no' }],
    });
  });

  it('hides the whole payload of a target this pod does not know: its secret parts are unknown', async () => {
    const row = await admin.insert({ target: 'elsewhere:x' });
    expect((await admin.get(`/jobs/${idOf(row)}`).expect(200)).body).toMatchObject({ payload: '[redacted]' });
  });

  it.each(['65f1c0ffee65f1c0ffee65f1', 'nonsense', 'stats%00'])('answers 404 for %s', async (id) => {
    const { body } = await admin.get(`/jobs/${id}`).expect(404);
    expect(body).toEqual({ statusCode: 404, code: 'not_found', message: [expect.any(String)] });
  });
});

describe('POST /jobs/:id/retry', () => {
  it('brings a row that really died back with a fresh budget, keeps what the fence needs, and it runs', async () => {
    await admin.pod.leases.heartbeat();
    fail = true;
    await admin.pod.sideEffect.enqueue('orders:ship', { n: 1 }, { key: 'K' });
    await admin.pod.drain();
    const dead = (await admin.pod.jobs.findOne({ status: 'DEAD' }))!;
    fail = false;
    admin.clock.advance(5_000);
    const rev = (await admin.pod.collections.partitions.findOne({ partition: dead.partition }))!.rev ?? 0;

    const { body } = await admin.post(`/jobs/${idOf(dead)}/retry`, { reason: 'fixed' }).expect(200);
    expect(body).toMatchObject({
      _id: idOf(dead),
      status: 'PENDING',
      attempts: 0,
      crashes: 0,
      next_run_at: admin.clock.now().toISOString(),
      outcome_token: dead.outcome_token,
    });
    expect(dead.outcome_token).toEqual(expect.any(String));
    for (const gone of ['payload', 'closed_at', 'expire_at']) expect(body).not.toHaveProperty(gone);
    const partition = await admin.pod.collections.partitions.findOne({ partition: dead.partition });
    expect(partition?.rev).toBe(rev + 1);
    expect(await admin.audit()).toEqual([
      { actor: 'ada', action: 'job.retry', subject: idOf(dead), count: 1, reason: 'fixed' },
    ]);
    expect(admin.pod.eventsOf('enqueued').at(-1)?.rows).toEqual([
      { target: 'orders:ship', partition: dead.partition, lane: 'fast' },
    ]);

    await admin.pod.leases.heartbeat();
    await admin.pod.drain();
    expect(sent).toEqual([idOf(dead)]);
    expect(await admin.pod.jobs.countDocuments()).toBe(0);
  });

  it('lets an earlier version go first again, also before rows that were read already', async () => {
    await admin.pod.leases.heartbeat();
    for (const version of [2, 3]) await admin.pod.sideEffect.enqueue('orders:ship', {}, { key: 'K', version });
    const [second, third] = await admin.pod.jobs.find({}, { sort: { version: 1 } }).toArray();
    const { partition } = second!;
    const first = await admin.insert({ key: 'K', order_key: 'K', version: 1, status: 'DEAD', partition });
    whileSending = async () => void (await admin.post(`/jobs/${idOf(first)}/retry`).expect(200));
    await admin.pod.drain();
    expect(sent).toEqual([second!, first, third!].map(idOf));
  });

  it('takes claim, cancel request and expiry off a long-lane row, and leaves the partitions alone', async () => {
    const at = admin.clock.now();
    const row = await admin.insert({
      lane: 'long',
      target: 'reports:build',
      status: 'DEAD',
      crashes: 5,
      expire_at: at,
      claimed_by: 'p',
      claim_token: 't',
      lease_until: at,
      started_at: at,
      running_code: 'c',
      cancel_requested: { at, by: 'x', reason: 'y' },
    });
    const before = await revs();
    await admin.post(`/jobs/${idOf(row)}/retry`).expect(200);
    const after = (await admin.find(row))!;
    expect(after).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
    const gone: (keyof JobDoc)[] = ['expire_at', 'claimed_by', 'claim_token', 'lease_until', 'started_at'];
    for (const field of [...gone, 'running_code', 'cancel_requested', 'closed_at'])
      expect(after).not.toHaveProperty(field);
    expect(await revs()).toEqual(before);
  });

  it.each(['PENDING', 'RUNNING', 'DONE'] as const)(
    'answers 409 invalid_status for a %s row, and changes nothing',
    async (status) => {
      const row = await admin.insert({ status });
      for (const action of ['retry', 'skip']) {
        const { body } = await admin.post(`/jobs/${idOf(row)}/${action}`).expect(409);
        expect(body).toEqual({
          statusCode: 409,
          code: 'invalid_status',
          message: [`the job is ${status}, expected DEAD`],
        });
      }
      expect(await admin.find(row)).toEqual(row);
      expect(await admin.audit()).toEqual([]);
    },
  );

  it.each(['retry', 'skip', 'cancel'])('answers 404 for %s of an unknown and of an impossible id', async (action) => {
    for (const id of ['65f1c0ffee65f1c0ffee65f1', 'nonsense', 'x'.repeat(10_000)]) {
      const { body } = await admin.post(`/jobs/${id}/${action}`).expect(404);
      expect(body).toMatchObject({ statusCode: 404, code: 'not_found' });
    }
  });

  it('of 20 at once: one 200, the rest 409, one audit row', async () => {
    const row = await admin.insert({ status: 'DEAD' });
    const answers = await Promise.all(Array.from({ length: 20 }, () => admin.post(`/jobs/${idOf(row)}/retry`)));
    expect(statusesOf(answers)).toEqual([200, ...Array.from({ length: 19 }, () => 409)]);
    expect(await admin.audit()).toHaveLength(1);
    expect(await admin.find(row)).toMatchObject({ status: 'PENDING', attempts: 0 });
  });
});

describe('POST /jobs/:id/skip', () => {
  it('removes a DEAD row, tells so, and audits it', async () => {
    const row = await admin.insert({ status: 'DEAD' });
    const { body } = await admin.post(`/jobs/${idOf(row)}/skip`, {}).expect(200);
    expect(body).toEqual({ _id: idOf(row), skipped: true });
    expect(await admin.find(row)).toBeNull();
    expect(await admin.audit()).toEqual([{ actor: 'ada', action: 'job.skip', subject: idOf(row), count: 1 }]);
    expect(admin.pod.eventsOf('skipped')).toMatchObject([{ rows: [{ id: idOf(row), code: 'ship' }] }]);
  });

  it('against retry, both at once: exactly one wins', async () => {
    for (let round = 0; round < 8; round++) {
      const row = await admin.insert({ status: 'DEAD' });
      const calls = [admin.post(`/jobs/${idOf(row)}/retry`), admin.post(`/jobs/${idOf(row)}/skip`)];
      const answers = await Promise.all(calls);
      const [winner, loser] = [...answers].sort((a, b) => a.status - b.status);
      expect(winner!.status).toBe(200);
      expect([404, 409]).toContain(loser!.status);
      const skipped = answers[1]!.status === 200;
      expect(await admin.find(row)).toEqual(skipped ? null : expect.objectContaining({ status: 'PENDING' }));
    }
    expect(await admin.audit()).toHaveLength(8);
  });
});

describe('POST /jobs/:id/cancel', () => {
  it('removes a waiting row, and its deferred followers come due, never before their own time', async () => {
    const now = admin.clock.now();
    const later = new Date(now.getTime() + 60_000);
    const future = new Date(now.getTime() + 30_000);
    const key = { key: 'K', order_key: 'K' };
    const own = new Date(now.getTime() + 45_000);
    const [head, follower, postponed, retrying, deferred, otherKey] = await admin.insertMany([
      { ...key, version: 1, attempts: 2, next_run_at: later },
      { ...key, version: 2, next_run_at: later },
      { ...key, version: 3, run_at: future, next_run_at: later },
      { ...key, version: 4, attempts: 1, next_run_at: own },
      { ...key, version: 5, attempts: 1, next_run_at: later },
      { key: 'L', version: 1, next_run_at: later },
    ]);
    const [rev] = await revs();
    const { body } = await admin.post(`/jobs/${idOf(head!)}/cancel`, { reason: 'withdrawn' }).expect(200);
    expect(body).toEqual({ _id: idOf(head!), cancelled: true, state: 'deleted' });
    expect(await admin.find(head!)).toBeNull();
    expect((await admin.find(follower!))?.next_run_at).toEqual(now);
    expect((await admin.find(postponed!))?.next_run_at).toEqual(future);
    expect((await admin.find(retrying!))?.next_run_at).toEqual(own);
    expect((await admin.find(deferred!))?.next_run_at).toEqual(now);
    expect((await admin.find(otherKey!))?.next_run_at).toEqual(later);
    expect(await admin.audit()).toEqual([
      { actor: 'ada', action: 'job.cancel', subject: idOf(head!), count: 1, reason: 'withdrawn' },
    ]);
    expect(admin.pod.eventsOf('cancelled')).toHaveLength(1);
    expect(admin.pod.eventsOf('enqueued')).toHaveLength(1);
    expect((await revs())[0]).toBe(rev! + 1);
  });

  it('leaves the others deferred when the row was not the head', async () => {
    const later = new Date(admin.clock.now().getTime() + 60_000);
    const key = { key: 'K', order_key: 'K', next_run_at: later };
    const [, second, third] = await admin.insertMany([
      { ...key, version: 1, attempts: 1 },
      { ...key, version: 2 },
      { ...key, version: 3 },
    ]);
    await admin.post(`/jobs/${idOf(second!)}/cancel`).expect(200);
    expect((await admin.find(third!))?.next_run_at).toEqual(later);
  });

  it('answers 409 in_flight for a row that is being sent, and nothing changes; once settled it works', async () => {
    const row = await admin.insert({});
    const mark = {
      target: row.target,
      mode: 'at_most_once' as const,
      token: 'm1',
      ids: [row._id],
      at: admin.clock.now(),
    };
    await admin.pod.collections.partitions.updateOne({ partition: 0 }, { $set: { inflight: [mark] } });
    const before = await revs();
    const { body } = await admin.post(`/jobs/${idOf(row)}/cancel`).expect(409);
    expect(body).toMatchObject({ statusCode: 409, code: 'in_flight' });
    expect(await admin.find(row)).toEqual(row);
    expect(await revs()).toEqual(before);
    expect(await admin.audit()).toEqual([]);

    await admin.pod.jobs.updateOne({ _id: row._id }, { $set: { outcome_token: 'm1' } });
    await admin.post(`/jobs/${idOf(row)}/cancel`).expect(200);
  });

  it('never lets a cancelled row start from a page that was read before', async () => {
    await admin.pod.leases.heartbeat();
    for (const version of [1, 2]) await admin.pod.sideEffect.enqueue('orders:ship', {}, { key: 'K', version });
    const [first, second] = await admin.pod.jobs.find({}, { sort: { version: 1 } }).toArray();
    // While the first one runs, the page with the second one is in the owner's hands already.
    whileSending = async () => void (await admin.post(`/jobs/${idOf(second!)}/cancel`).expect(200));
    await admin.pod.drain();
    expect(sent).toEqual([idOf(first!)]);
    expect(await admin.pod.jobs.countDocuments()).toBe(0);
  });

  it('refuses the very row that is running', async () => {
    await admin.pod.leases.heartbeat();
    await admin.pod.sideEffect.enqueue('orders:ship', {});
    const row = (await admin.pod.jobs.findOne({}))!;
    whileSending = async () => void (await admin.post(`/jobs/${idOf(row)}/cancel`).expect(409));
    await admin.pod.drain();
    expect(sent).toEqual([idOf(row)]);
  });

  it('asks a RUNNING row to end: 202, the first request stands, and the lane is told', async () => {
    const row = await admin.insert({ lane: 'long', target: 'reports:build', status: 'RUNNING', claim_token: 't' });
    const { body } = await admin.post(`/jobs/${idOf(row)}/cancel`, { reason: 'by mistake' }).expect(202);
    expect(body).toEqual({ _id: idOf(row), cancelled: true, state: 'cancel_requested' });
    const request = { at: admin.clock.now(), by: 'ada', reason: 'by mistake' };
    expect(await admin.find(row)).toMatchObject({ status: 'RUNNING', claim_token: 't', cancel_requested: request });
    expect(admin.pod.eventsOf('cancel_requested')).toEqual([{ type: 'cancel_requested', id: idOf(row) }]);

    await admin.post(`/jobs/${idOf(row)}/cancel`, { reason: 'again' }).expect(202);
    expect((await admin.find(row))?.cancel_requested).toEqual(request);
    expect(await admin.audit()).toHaveLength(1);
  });

  it('removes a waiting long-lane row without touching a partition', async () => {
    const row = await admin.insert({ lane: 'long', target: 'reports:build' });
    const before = await revs();
    await admin.post(`/jobs/${idOf(row)}/cancel`).expect(200);
    expect(await admin.find(row)).toBeNull();
    expect(await revs()).toEqual(before);
  });

  it.each(['DEAD', 'DONE'] as const)('answers 409 for a %s row', async (status) => {
    const row = await admin.insert({ status });
    const { body } = await admin.post(`/jobs/${idOf(row)}/cancel`).expect(409);
    expect(body).toMatchObject({
      code: 'invalid_status',
      message: [`the job is ${status}, expected PENDING or RUNNING`],
    });
  });

  it('of 10 at once on a waiting row: one 200, the others 404 or 409', async () => {
    const row = await admin.insert({});
    const answers = await Promise.all(Array.from({ length: 10 }, () => admin.post(`/jobs/${idOf(row)}/cancel`)));
    const statuses = statusesOf(answers);
    expect(statuses.filter((status) => status === 200)).toHaveLength(1);
    expect(statuses.filter((status) => ![200, 404, 409].includes(status))).toEqual([]);
    expect(await admin.audit()).toHaveLength(1);
  });
});
