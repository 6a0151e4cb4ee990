/** Retry and skip of many DEAD rows: what a filter means, its bounds, its audit, and that calls can be repeated. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { AdminApp } from '../support/admin_app.js';
import { TestDatabase } from '../support/pod.js';

const database = new TestDatabase();
let admin: AdminApp;

const idOf = (row: { _id: { toHexString(): string } }): string => row._id.toHexString();
const dead = (count: number, more: object = {}) =>
  Array.from({ length: count }, () => ({ status: 'DEAD' as const, ...more }));
const count = (filter: object): Promise<number> => admin.pod.jobs.countDocuments(filter);

beforeAll(async () => {
  admin = await AdminApp.start(database, { jobs: { admin: { bulk_limit: 250, count_limit: 300 } } });
});
afterEach(async () => {
  admin.pod.events.length = 0;
  for (const name of ['jobs', 'audit'] as const) await admin.pod.collections[name].deleteMany({});
  await admin.pod.collections.partitions.updateMany({}, { $set: { rev: 0 } });
});
afterAll(async () => {
  await admin?.close();
  await database.drop();
});

describe('POST /jobs/bulk/retry', () => {
  it('brings back what matches and nothing else, in small transactions, with one audit row and all hints', async () => {
    await admin.insertMany([
      ...dead(120, { partition: 1 }),
      ...dead(30, { partition: 2 }),
      ...dead(5, { code: 'other' }),
      { status: 'PENDING', attempts: 3 },
      ...dead(2, { target: 'elsewhere:x' }),
    ]);
    const filter = { target: 'orders:ship', code: 'ship' };
    const names = await admin.pod.commandsOf(async () => {
      const { body } = await admin.post('/jobs/bulk/retry', { filter, reason: 'fixed' }).expect(200);
      expect(body).toEqual({ changed: 150, remaining: 0, remaining_at_least: false, dry_run: false });
    });
    expect(names.filter((name) => name === 'commitTransaction')).toHaveLength(2);
    expect(await count({ status: 'PENDING', attempts: 0, crashes: 0, closed_at: { $exists: false } })).toBe(150);
    expect(await count({ status: 'DEAD' })).toBe(7);
    expect(await count({ attempts: 3 })).toBe(1);
    expect(await admin.audit()).toEqual([
      { actor: 'ada', action: 'jobs.retry', subject: JSON.stringify(filter), count: 150, reason: 'fixed' },
    ]);
    const revs = await admin.pod.collections.partitions.find({}, { sort: { partition: 1 } }).toArray();
    expect(revs.map(({ rev }) => (rev ?? 0) > 0)).toEqual([false, true, true, false]);
    expect(admin.pod.eventsOf('enqueued').flatMap(({ rows }) => rows)).toHaveLength(150);
  });

  it.each<[name: string, filter: object, matches: number]>([
    ['key', { key: 'K' }, 3],
    ['key and code', { key: 'K', code: 'b' }, 1],
    ['status and target', { status: 'DEAD', target: 'elsewhere:x' }, 1],
    ['from', { key: 'K', from: '2030-01-01T00:00:00.001Z' }, 2],
    ['to, which is not included', { key: 'K', to: '2030-01-01T00:00:10Z' }, 1],
    ['from and to, with a zone', { key: 'K', from: '2030-01-01T07:00:05+07:00', to: '2030-01-01T07:00:20+07:00' }, 1],
  ])('selects by %s', async (_, filter, matches) => {
    const at = (ms: number) => ({ closed_at: new Date(admin.clock.now().getTime() + ms) });
    await admin.insertMany([
      ...dead(1, { key: 'K', code: 'a', ...at(0) }),
      ...dead(1, { key: 'K', code: 'b', ...at(10_000) }),
      ...dead(1, { key: 'K', code: 'c', ...at(20_000) }),
      ...dead(1, { target: 'elsewhere:x' }),
      { key: 'K', status: 'PENDING' },
    ]);
    const { body } = await admin.post('/jobs/bulk/retry', { filter }).expect(200);
    expect(body).toMatchObject({ changed: matches, remaining: 0 });
  });

  it('by ids takes those that are DEAD, each once', async () => {
    const rows = await admin.insertMany([...dead(3), { status: 'PENDING', attempts: 2 }]);
    const ids = [...rows.map(idOf), idOf(rows[0]!), new mongoose.Types.ObjectId().toHexString()];
    const { body } = await admin.post('/jobs/bulk/retry', { filter: { ids } }).expect(200);
    expect(body).toMatchObject({ changed: 3, remaining: 0 });
    expect(await count({ attempts: 2 })).toBe(1);
  });

  it('finds and counts a few rows among many that no index keeps apart, with bounded commands', async () => {
    await admin.insertMany([...dead(350), ...dead(2, { code: 'rare' }), ...dead(350), ...dead(3, { code: 'rare' })]);
    const looks: number[] = [];
    const note = ({ command }: { command: { aggregate?: string; pipeline?: { $limit?: number }[] } }): void => {
      if (command.aggregate === 'jobs') looks.push(command.pipeline!.find((stage) => stage.$limit)!.$limit!);
    };
    const client = admin.pod.connection.getClient();
    client.on('commandStarted', note);
    const filter = { code: 'rare' };
    const { body: dry } = await admin.post('/jobs/bulk/retry', { filter, dry_run: true }).expect(200);
    expect(dry).toMatchObject({ changed: 0, remaining: 5, remaining_at_least: false });
    const { body } = await admin.post('/jobs/bulk/retry', { filter, limit: 4 }).expect(200);
    expect(body).toMatchObject({ changed: 4, remaining: 1, remaining_at_least: false });
    client.off('commandStarted', note);
    expect(looks.length).toBeGreaterThanOrEqual(3 * 3);
    expect(Math.max(...looks)).toBeLessThanOrEqual(301);
    expect(await count({ status: 'PENDING', code: 'rare' })).toBe(4);
    expect(await count({ status: 'DEAD' })).toBe(701);
  });

  it('is bounded by limit and by bulk_limit, says what remains, and goes on when called again', async () => {
    await admin.insertMany(dead(620));
    const filter = { code: 'ship' };
    const call = async (more: object = {}) =>
      (await admin.post('/jobs/bulk/retry', { filter, ...more }).expect(200)).body;
    expect(await call({ limit: 7 })).toMatchObject({ changed: 7, remaining: 300, remaining_at_least: true });
    expect(await call()).toMatchObject({ changed: 250, remaining: 300, remaining_at_least: true });
    expect(await call({ limit: 200 })).toMatchObject({ changed: 200, remaining: 163, remaining_at_least: false });
    expect(await call()).toMatchObject({ changed: 163, remaining: 0 });
    expect(await call()).toMatchObject({ changed: 0, remaining: 0 });
    const counts = (await admin.audit()).map((row) => row['count']);
    expect(counts).toEqual([7, 250, 200, 163]);
  });

  it('of two calls at once changes every row once, and the audit tells so', async () => {
    await admin.insertMany(dead(240));
    const call = () => admin.post('/jobs/bulk/retry', { filter: { code: 'ship' } }).expect(200);
    const answers = await Promise.all([call(), call(), call()]);
    const changed = answers.map(({ body }) => body.changed as number);
    expect(changed.reduce((sum, each) => sum + each, 0)).toBe(240);
    const audited = (await admin.audit()).map((row) => row['count'] as number);
    expect(audited.reduce((sum, each) => sum + each, 0)).toBe(240);
    expect(await count({ status: 'PENDING' })).toBe(240);
  });
});

describe('POST /jobs/bulk/skip', () => {
  it('removes what matches, tells every row, and leaves the partitions alone', async () => {
    const rows = await admin.insertMany([...dead(130), { status: 'PENDING' }]);
    const { body } = await admin.post('/jobs/bulk/skip', { filter: { code: 'ship' }, reason: 'obsolete' }).expect(200);
    expect(body).toEqual({ changed: 130, remaining: 0, remaining_at_least: false, dry_run: false });
    expect(await count({})).toBe(1);
    const skipped = admin.pod.eventsOf('skipped').flatMap((event) => event.rows.map((row) => row.id));
    expect(skipped).toEqual(rows.slice(0, 130).map(idOf));
    expect(await admin.audit()).toMatchObject([{ action: 'jobs.skip', count: 130, reason: 'obsolete' }]);
    expect(await admin.pod.collections.partitions.countDocuments({ rev: { $gt: 0 } })).toBe(0);
  });

  it('against retry, both at once: every row ends one way', async () => {
    await admin.insertMany(dead(200));
    const filter = { code: 'ship' };
    const [retried, skipped] = await Promise.all(
      ['retry', 'skip'].map((action) => admin.post(`/jobs/bulk/${action}`, { filter }).expect(200)),
    );
    expect(retried!.body.changed + skipped!.body.changed).toBe(200);
    expect(await count({ status: 'PENDING' })).toBe(retried!.body.changed);
    expect(await count({ status: 'DEAD' })).toBe(0);
    expect(admin.pod.eventsOf('skipped').flatMap((event) => event.rows)).toHaveLength(skipped!.body.changed);
  });
});

it.each(['retry', 'skip'])('a dry run of %s counts, and changes and audits nothing', async (action) => {
  await admin.insertMany(dead(12));
  const before = await admin.pod.jobs.find().toArray();
  const { body } = await admin.post(`/jobs/bulk/${action}`, { filter: { code: 'ship' }, dry_run: true }).expect(200);
  expect(body).toEqual({ changed: 0, remaining: 12, remaining_at_least: false, dry_run: true });
  expect(await admin.pod.jobs.find().toArray()).toEqual(before);
  expect(await admin.audit()).toEqual([]);
});

it('nothing matches: nothing is written, not even an audit row', async () => {
  const names = await admin.pod.commandsOf(() =>
    admin.post('/jobs/bulk/skip', { filter: { key: 'none' } }).expect(200),
  );
  expect(names).toEqual(['aggregate', 'find', 'aggregate']);
});

it.each(['dry_run=true', 'reason=x', 'dry_run=true&dry_run=true', 'filter[key]=K', '=x'])(
  'beside a body the query ?%s is refused: overlooked, it would let a call change what it was to count',
  async (query) => {
    await admin.insertMany(dead(3));
    const body = { filter: { code: 'ship' } };
    const answer = await admin.post(`/jobs/bulk/skip?${query}`, body).expect(400);
    expect(answer.body).toMatchObject({ statusCode: 400, code: 'invalid_input' });
    expect(await count({ status: 'DEAD' })).toBe(3);
    await admin.post('/jobs/bulk/skip?', body).expect(200);
  },
);

it.each([
  ['2026-02-31T08:00:00Z', 400],
  ['2025-02-29T08:00:00Z', 400],
  ['2026-04-31T08:00:00+07:00', 400],
  ['2026-01-00T08:00:00Z', 400],
  ['2026-13-01T08:00:00Z', 400],
  ['2024-02-29T08:00:00Z', 200],
  ['2026-01-31T23:59:59.999-11:00', 200],
])('the time %s is answered %s: a day that its month does not have is no other day', async (from, status) => {
  const { body } = await admin.post('/jobs/bulk/retry', { filter: { key: 'none', from } }).expect(status);
  if (status === 400) expect(body).toMatchObject({ code: 'invalid_input' });
});
