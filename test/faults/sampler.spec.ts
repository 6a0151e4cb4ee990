/** What a look at the collections tells, for each state that must not exist and for the allowed one next to it. */
import { describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { randomUUID } from 'node:crypto';
import {
  doubledCodes,
  impossiblePartition,
  impossibleRow,
  Sampler,
  SeenSchedules,
  SeenTerms,
} from './bench/sampler.js';
import { NEW_TARGETS } from './bench/pod_settings.js';

type Row = Parameters<typeof impossibleRow>[0];
type Partition = Parameters<typeof impossiblePartition>[0];

const now = new Date();
const claim = { claimed_by: 'p', claim_token: 't', lease_until: now, started_at: now };
const cancel_requested = { at: now, by: 'a', reason: 'r' };
const pending = { lane: 'long', status: 'PENDING', next_run_at: now };
const running = { ...pending, status: 'RUNNING', ...claim };
const dead = { ...pending, status: 'DEAD', closed_at: now };
const done = { ...dead, status: 'DONE' };

describe('a row', () => {
  it.each<[string, object]>([
    ['waits', pending],
    ['waits on the fast lane', { ...pending, lane: 'fast' }],
    ['runs', running],
    ['runs in the place of its code', { ...running, running_code: 'x' }],
    ['runs, and an admin wants it gone', { ...running, cancel_requested }],
    ['is DEAD', dead],
    ['is DONE', done],
  ])('that %s is nothing to tell', (_, row) => {
    expect(impossibleRow(row as Row)).toBeUndefined();
  });

  it.each<[string, object]>([
    ['a lane that nobody reads', { ...pending, lane: 'slow' }],
    ['a status that nobody reads', { ...pending, status: 'WAITING' }],
    ['RUNNING on the fast lane', { ...running, lane: 'fast' }],
    ...Object.keys(claim).map((field): [string, object] => [
      'RUNNING without all of its claim',
      { ...running, [field]: undefined },
    ]),
    ['PENDING with a claim', { ...pending, lease_until: now }],
    ['PENDING with a claim', { ...pending, running_code: 'x' }],
    ['PENDING but closed', { ...pending, closed_at: now }],
    ['PENDING without a due time', { ...pending, next_run_at: undefined }],
    ['DEAD with a claim', { ...dead, claim_token: 't' }],
    ['DONE with a claim', { ...done, running_code: 'x' }],
    ['DEAD without closed_at', { ...dead, closed_at: undefined }],
    ['PENDING with a wish to cancel it', { ...pending, cancel_requested }],
    ['DEAD with a wish to cancel it', { ...dead, cancel_requested }],
    ['DONE with a wish to cancel it', { ...done, cancel_requested }],
  ])('%s', (fault, row) => {
    expect(impossibleRow(row as unknown as Row)).toBe(fault);
  });

  it('may share a code with one that waits, not with one that runs', () => {
    const rows = [
      { ...running, running_code: 'x' },
      { ...running, running_code: 'x#2' },
      { ...running },
      { ...running },
      { ...pending, running_code: 'x' },
    ] as Row[];
    expect(doubledCodes(rows)).toEqual([]);
    expect(doubledCodes([...rows, { ...running, running_code: 'x' } as Row])).toEqual(['two RUNNING rows of x']);
  });
});

describe('a partition', () => {
  const free = { partition: 1, owner: null, lease_until: null, inflight: [] };
  const owned = { partition: 1, owner: 'p', lease_until: now, lease_token: 't', inflight: [] };
  const mark = { target: 'a', mode: 'at_most_once', token: 't', ids: [], at: now };

  it.each<[string, object]>([
    ['free', free],
    ['owned', owned],
    ...NEW_TARGETS.map((target): [string, object] => [
      `free, with a mark of ${target} that its last owner could not judge`,
      { ...free, inflight: [{ ...mark, target }] },
    ]),
    ['owned, with marks of two targets', { ...owned, inflight: [mark, { ...mark, target: 'b' }] }],
  ])('that is %s is nothing to tell', (_, partition) => {
    expect(impossiblePartition(partition as Partition)).toBeUndefined();
  });

  it.each<[string, object]>([
    ['a lease without an owner', { ...free, lease_token: 't' }],
    ['a lease without an owner', { ...free, lease_until: now }],
    ['an owner without a lease', { ...owned, lease_token: undefined }],
    ['an owner without a lease', { ...owned, lease_until: null }],
    ['in-flight entries without an owner', { ...free, inflight: [mark] }],
    ['two in-flight entries of one target', { ...owned, inflight: [mark, mark] }],
    ...Object.keys(mark).map((field): [string, object] => [
      'an in-flight entry of unknown shape',
      { ...owned, inflight: [{ ...mark, [field]: undefined }] },
    ]),
  ])('%s', (fault, partition) => {
    expect(impossiblePartition(partition as unknown as Partition)).toBe(fault);
  });
});

describe('what does not stay', () => {
  it('terms, each once per partition, when they were first seen', () => {
    const seen = new SeenTerms();
    seen.see([{ partition: 1, lease_token: 'a' }, { partition: 2 }], 10);
    seen.see(
      [
        { partition: 1, lease_token: 'b' },
        { partition: 2, lease_token: 'a' },
      ],
      20,
    );
    seen.see([{ partition: 1, lease_token: 'a' }], 30);
    expect(seen.list).toEqual([
      { partition: 1, term: 'a', at: 10 },
      { partition: 1, term: 'b', at: 20 },
      { partition: 2, term: 'a', at: 20 },
    ]);
  });

  it('slots of schedules: all that were decided about, all that were skipped, and the last word on the next', () => {
    const at = (second: number): Date => new Date(second * 1_000);
    const seen = new SeenSchedules();
    seen.see([{ code: 'tick', next_run_at: at(2) }, { code: 'lost' }]);
    seen.see([{ code: 'tick', last_slot_at: at(2), next_run_at: at(4) }]);
    seen.see([{ code: 'tick', last_slot_at: at(6), last_skipped_at: at(4), next_run_at: at(8) }]);
    seen.see([{ code: 'tick', last_slot_at: at(6), last_skipped_at: at(4) }]);
    expect(seen.stories).toEqual([
      {
        code: 'tick',
        slots: [at(2), at(6)].map((slot) => slot.toISOString()),
        skipped: [at(4).toISOString()],
      },
      { code: 'lost', slots: [], skipped: [] },
    ]);
  });
});

describe('the sampler', () => {
  it('looks into all three collections, and says why it could not', async () => {
    const dbName = `t_${randomUUID().slice(0, 8)}`;
    const connection = await mongoose.createConnection(process.env['MONGO_URI']!, { dbName }).asPromise();
    const sampler = new Sampler(connection);
    await connection.collection('jobs').insertOne({ ...pending, status: 'WAITING' });
    await connection
      .collection('job_partitions')
      .insertOne({ partition: 3, owner: null, lease_token: 't', inflight: [] });
    await connection.collection('schedules').insertOne({ code: 'tick', last_slot_at: now });
    sampler.start();
    await sampler.stop();
    expect([...sampler.found.keys()]).toEqual(['a status that nobody reads', 'a lease without an owner']);
    expect(sampler.terms).toMatchObject([{ partition: 3, term: 't' }]);
    expect(sampler.schedules).toEqual([{ code: 'tick', slots: [now.toISOString()], skipped: [] }]);
    expect([sampler.looks, sampler.failure]).toEqual([1, undefined]);
    await connection.dropDatabase();
    await connection.close(true);
    await expect(sampler.stop()).rejects.toThrow();
    expect(sampler.looks).toBe(1);
  });
});
