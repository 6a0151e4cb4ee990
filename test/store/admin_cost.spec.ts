/**
 * What the admin's reads cost with a backlog behind them: each branch follows an index and looks at no more documents
 * than its limit. The commands are taken from the wire and explained by the database.
 */
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { countByTarget } from '../../src/jobs/store/admin_counts.store.js';
import { countJobs, listJobs } from '../../src/jobs/store/admin.store.js';
import { readSlice } from '../../src/jobs/store/admin_bulk.store.js';
import { readKeysBehind } from '../../src/jobs/store/admin_keys.store.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

// A planner that has no statistics of these fresh rows yet may guess wrong; it gathers them within a minute.
jest.retryTimes(3, { waitBeforeRetry: 15_000 });

const MOST = 20;
/** Enough for the planner to prefer an index to reading and sorting everything. */
const BACKLOG = 4_000;
const database = new TestDatabase();
let pod: TestPod;

type Command = Record<string, unknown>;

async function sent(work: () => Promise<unknown>): Promise<Command[]> {
  const commands: Command[] = [];
  const note = ({ commandName, command }: { commandName: string; command: Command }): void => {
    if (commandName === 'find' || commandName === 'aggregate') commands.push(command);
  };
  const client = pod.connection.getClient();
  client.on('commandStarted', note);
  await work();
  client.off('commandStarted', note);
  return commands;
}

interface Cost {
  indexes: string[];
  /** Documents or index keys, whichever are more. */
  looked_at: number;
  stages: string[];
}

async function explain(command: Command): Promise<Cost> {
  const keep = ['find', 'filter', 'sort', 'limit', 'skip', 'projection', 'hint', 'aggregate', 'pipeline'];
  const plain = Object.fromEntries(Object.entries(command).filter(([name]) => keep.includes(name)));
  const plan = await pod.connection.db!.command({ explain: plain, verbosity: 'executionStats' });
  const cost: Cost = { indexes: [], looked_at: 0, stages: [] };
  const walk = (node: unknown): void => {
    if (typeof node !== 'object' || node === null) return;
    for (const [name, value] of Object.entries(node)) {
      if (name === 'indexName' && typeof value === 'string') cost.indexes.push(value);
      if (name === 'stage' && typeof value === 'string') cost.stages.push(value);
      if (/^total(Docs|Keys)Examined$/.test(name)) cost.looked_at = Math.max(cost.looked_at, Number(value));
      if (name !== 'command') walk(value);
    }
  };
  walk(plan);
  return cost;
}

const costsOf = async (work: () => Promise<unknown>): Promise<Cost[]> => Promise.all((await sent(work)).map(explain));

beforeAll(async () => {
  pod = await database.pod();
  const now = pod.now();
  const row = (index: number, more: Partial<JobDoc>): object => ({
    code: 'c',
    target: 'a:a',
    lane: 'fast',
    order_key: `k${index % 50}`,
    key: `k${index % 50}`,
    partition: index % 4,
    version: index,
    dedupe_key: `${more.status}-${more.lane}-${more.target}-${index}`,
    status: 'PENDING',
    attempts: 0,
    crashes: 0,
    priority: 2,
    run_at: now,
    next_run_at: now,
    ...more,
  });
  const many = (more: Partial<JobDoc>): object[] => Array.from({ length: BACKLOG }, (_, index) => row(index, more));
  const backlogs: Partial<JobDoc>[] = [
    { status: 'DEAD' },
    { status: 'DEAD', target: 'b:b' },
    { status: 'DONE' },
    {},
    { lane: 'long', target: 'l:l' },
  ];
  for (const backlog of backlogs) await pod.jobs.insertMany(many(backlog) as JobDoc[]);
}, 120_000);
afterAll(async () => {
  await database.drop();
});

describe('of a backlog, no more documents than the limit are looked at', () => {
  const targets = [
    { name: 'a:a', lane: 'fast' as const },
    { name: 'b:b', lane: undefined },
    { name: 'l:l', lane: 'long' as const },
  ];
  it.each<[name: string, work: () => Promise<unknown>, limit: number]>([
    ['counts by status and target', () => countByTarget(pod.collections, targets, MOST), MOST + 1],
    ['the total of a status', () => countJobs(pod.collections, { status: 'DEAD' }, MOST), MOST + 1],
    ['the total of a DEAD target', () => countJobs(pod.collections, { status: 'DEAD', target: 'a:a' }, MOST), MOST + 1],
    ['the total of a key', () => countJobs(pod.collections, { status: 'DEAD', key: 'k1' }, MOST), MOST + 1],
    ['the total of everything', () => countJobs(pod.collections, {}, MOST), MOST + 1],
    [
      'a page of a status',
      () => listJobs(pod.collections, { status: 'DEAD' }, { skip: 0, limit: MOST, look: MOST }),
      MOST,
    ],
    [
      'a page of a DEAD target, however many newer rows others have',
      () => listJobs(pod.collections, { status: 'DEAD', target: 'a:a' }, { skip: 0, limit: MOST, look: MOST }),
      MOST,
    ],
    [
      'a slice of a bulk action',
      () => readSlice(pod.collections, { target: 'a:a' }, { limit: MOST, look: MOST }),
      MOST,
    ],
    ['keys in order', () => readKeysBehind(pod.collections, { limit: MOST }), MOST],
    [
      'keys behind a place',
      () => readKeysBehind(pod.collections, { after: { target: 'a:a', partition: 1, order_key: 'k13' }, limit: MOST }),
      MOST,
    ],
  ])('%s', async (_, work, limit) => {
    const costs = await costsOf(work);
    expect(costs.length).toBeGreaterThan(0);
    for (const cost of costs) {
      expect({ ...cost, sorts: cost.stages.includes('SORT') }).toEqual({ ...cost, sorts: false });
      expect({ ...cost, looked_at: Math.max(cost.looked_at, limit) }).toEqual({ ...cost, looked_at: limit });
    }
  });
});

it('counts what it says', async () => {
  const { statuses, targets } = await countByTarget(
    pod.collections,
    [
      { name: 'a:a', lane: 'fast' },
      { name: 'l:l', lane: 'long' },
      { name: 'n:n', lane: undefined },
    ],
    100_000,
  );
  expect([...statuses.values()].map((each) => each.count)).toEqual([2 * BACKLOG, 0, 2 * BACKLOG, BACKLOG]);
  expect(targets.get('DEAD')?.get('a:a')).toEqual({ count: BACKLOG, at_least: false });
  expect(targets.get('PENDING')?.get('l:l')).toEqual({ count: BACKLOG, at_least: false });
  expect(targets.get('PENDING')?.has('n:n')).toBe(false);
});

it('counts target by target only what is more than its limit', async () => {
  const asked = [
    { name: 'a:a', lane: 'fast' as const },
    { name: 'n:n', lane: undefined },
  ];
  const count = async (most: number): Promise<number> => {
    const commands = await sent(async () => {
      const { targets } = await countByTarget(pod.collections, asked, most);
      const expected = { count: Math.min(BACKLOG, most), at_least: most < BACKLOG };
      expect(targets.get('PENDING')?.get('a:a')).toEqual(expected);
      expect(targets.get('DEAD')?.get('a:a')).toEqual(expected);
    });
    return commands.length;
  };
  expect(await count(100_000)).toBe(4);
  // Of the targets nobody asked for, the newest rows name b:b and l:l.
  const names = 2; // the first names that wait, and that there are no more: as many seeks as the lane with most, and one
  expect(await count(MOST)).toBe(4 + names + (1 + 2 + 2 + 2) + 4);
});
