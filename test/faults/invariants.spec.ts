/** The judge itself: each kind of broken promise is told from a ledger that shows it, and a ledger of good conduct is silent. */
import { describe, expect, it } from '@jest/globals';
import { judge, type Evidence, type LeftRow } from './bench/invariants.js';
import type { LedgerLine, RunStart } from './bench/ledger.js';
import { untoldJobs } from './bench/lossy_account.js';
import { quantile, waitsOf } from './bench/waits.js';

let now = 0;
const start = (n: string, change: Partial<RunStart> & { pod?: string } = {}): LedgerLine => ({
  what: 'start',
  at: ++now,
  pod: 'p1',
  n,
  id: n,
  target: 'fast:at_least_once',
  key: undefined,
  version: 0,
  run: now,
  attempt: 1,
  partition: 0,
  term: 'a',
  room: 1_000,
  ...change,
});
const end = (line: LedgerLine, result: 'ok' | 'failed' | 'unreachable' = 'ok'): LedgerLine => {
  const { pod, n, run } = line as LedgerLine & RunStart;
  return { what: 'end', at: ++now, pod, n, run, result };
};
const produced = (n: string, target = 'fast:at_least_once', behaviour = 'ok') => ({ n, target, behaviour });
const dead = (n: string, target: string): LeftRow => ({ id: n, n, target, status: 'DEAD', attempts: 0, crashes: 0 });

const dropped = (reason: string): LedgerLine => ({
  what: 'dropped',
  at: ++now,
  pod: 'p1',
  target: 'lossy:seen',
  count: 1,
  reason,
});
const kinds = (evidence: Partial<Evidence>): string[] =>
  judge({
    lines: [],
    produced: [],
    left: [],
    mourned: [],
    audit: [],
    unreleased: 0,
    pods: [],
    expectDead: () => false,
    calm: false,
    removed: [],
    terms: [],
    schedules: [],
    slot_rows: [],
    ...evidence,
  }).map(({ invariant }) => invariant);

describe('the judge', () => {
  it('says nothing of rows that ran, wait as DEAD with a reason to, or were taken away by an admin', () => {
    const run = start('a');
    const evidence = {
      lines: [run, end(run)],
      produced: [produced('a'), produced('b', 'long:at_most_once'), produced('c')],
      left: [dead('b', 'long:at_most_once')],
      audit: [{ action: 'job.skip', n: 'c' }],
    };
    expect(kinds(evidence)).toEqual([]);
  });

  it('misses a row that is gone without a good end', () => {
    const run = start('a');
    expect(kinds({ produced: [produced('a')], lines: [run, end(run, 'failed')] })).toEqual(['lost']);
  });

  it('sees what ran or stands without a commit, and a hook that ran without one', () => {
    const lines: LedgerLine[] = [start('a'), { what: 'hook', at: ++now, pod: 'p1', rows: ['c'] }];
    expect(kinds({ lines, left: [dead('b', 'fast:at_most_once')] })).toEqual([
      'phantom',
      'phantom',
      'phantom',
      'mourning',
    ]);
  });

  it.each([
    ['a good end', 'ok' as const, ['doubled']],
    ['no end', undefined, ['doubled']],
    ['an answered failure', 'failed' as const, []],
    ['a run that was not sent', 'unreachable' as const, []],
  ])('at most once: judges a second run after %s', (_, result, expected) => {
    const target = 'fast:at_most_once';
    const first = start('a', { target });
    const rest = result ? [end(first, result)] : [];
    const second = start('a', { target });
    const lines = [first, ...rest, second, end(second)];
    expect(kinds({ produced: [produced('a', target)], lines })).toEqual(expected);
  });

  it('sees a version that first starts after a later one of its key', () => {
    const rows = [start('b', { key: 'k', version: 2 }), start('a', { key: 'k', version: 1 })];
    const lines = [...rows, ...rows.map((row) => end(row))].sort((x, y) => x.at - y.at);
    expect(kinds({ produced: [produced('a'), produced('b')], lines })).toEqual(['order']);
  });

  it('holds rows to their first arrivals only', () => {
    const batch = { key: 'k', target: 'fast:batch' };
    const rows = [
      start('a', { ...batch, version: 1 }),
      start('b', { ...batch, version: 2 }),
      start('a', { ...batch, version: 1 }),
    ];
    const lines = [...rows, ...rows.slice(1).map((row) => end(row))];
    expect(kinds({ produced: [produced('a', 'fast:batch'), produced('b', 'fast:batch')], lines })).toEqual([]);
  });

  it.each([
    ['without a term', [start('a', { term: 'none' })]],
    ['without the time for a send', [start('a', { room: -1 })]],
    ['in a term that was over', [start('a'), start('b', { term: 'b' }), start('c')]],
  ])('sees a start %s', (_, starts) => {
    const names = ['a', 'b', 'c'].slice(0, starts.length);
    const lines = [...starts, ...starts.map((line) => end(line))];
    expect(kinds({ produced: names.map((n) => produced(n)), lines })).toEqual(['owner']);
  });

  it.each([
    [1_500, ['exclusive']],
    [900, []],
  ])('sees two runs of one exclusive code while the first claim had %s ms left', (room, expected) => {
    const target = 'long:exclusive';
    const [a, b] = [
      start('a', { target, key: 'x', partition: undefined, room }),
      start('b', { target, key: 'x', partition: undefined, room }),
    ];
    expect(kinds({ produced: [produced('a', target), produced('b', target)], lines: [a, b, end(a), end(b)] })).toEqual(
      expected,
    );
  });

  it.each([
    [1_500, ['exclusive']],
    [900, []],
  ])('sees two runs of one row while the claim of the first had %s ms left', (room, expected) => {
    const claimed = { target: 'long:at_least_once', partition: undefined, room };
    const [a, b] = [start('a', claimed), start('a', claimed)];
    expect(kinds({ produced: [produced('a', claimed.target)], lines: [a, b, end(a), end(b)] })).toEqual(expected);
  });

  it('sees a slot that became two rows, a chain that went on twice, and a death mourned twice', () => {
    const slot = { target: 'schedule:tick', slot: '10:00', partition: undefined };
    const one = start('tick@10:00', { ...slot, id: '1' });
    const ended = end(one);
    const two = start('tick@10:00', { ...slot, id: '2' });
    expect(kinds({ lines: [one, ended, two, end(two)] })).toEqual(['slot']);
    const next = start('a+');
    expect(kinds({ produced: [produced('a+'), produced('a+')], lines: [next, end(next)] })).toEqual(['chain']);
    const target = 'fast:at_most_once';
    const evidence = { produced: [produced('a', target)], left: [dead('a', target)] };
    expect(kinds({ ...evidence, mourned: ['a', 'a'] })).toEqual(['mourning']);
    expect(kinds({ ...evidence, mourned: ['a'] })).toEqual([]);
  });

  it('sees at-least-once rows that died of faults alone, troubles, deaths and what a clean stop left behind', () => {
    const target = 'fast:at_least_once';
    expect(kinds({ produced: [produced('a')], left: [dead('a', target)] })).toEqual(['dead']);
    expect(kinds({ lines: [{ what: 'trouble', at: 1, pod: 'p1', text: 'unhandled' }] })).toEqual(['trouble']);
    expect(kinds({ pods: [{ name: 'p1', endedAt: 1, diedByItself: 'code 1' }], unreleased: 1 })).toEqual([
      'died',
      'release',
    ]);
  });

  it.each([
    ['nobody speaks of', [], [], ['lossy']],
    ['waits in Redis', [], ['a'], []],
    ['was counted', [dropped('timeout')], [], []],
    ['is missing, while another one failed', [dropped('failed')], [], ['lossy']],
    ['ran', [start('a', { target: 'lossy:seen', partition: undefined })], [], []],
  ])('a lossy job may be lost, but not untold: one that %s', (_, lines, waiting, expected) => {
    const rows = [produced('a', 'lossy:seen')];
    expect(untoldJobs(rows, lines, waiting).map(({ invariant }) => invariant)).toEqual(expected);
    expect(kinds({ produced: rows, lines })).toEqual([]);
  });

  it('sees a lossy job that runs twice', () => {
    const lossy = { target: 'lossy:seen', partition: undefined };
    const lines = [start('a', lossy), start('a', lossy)];
    expect(kinds({ produced: [produced('a', 'lossy:seen')], lines })).toEqual(['doubled']);
  });
});

describe('the waits', () => {
  it('are counted from the commit to the first start, without end for what never starts', () => {
    const hook: LedgerLine = { what: 'hook', at: 100, pod: 'p1', rows: ['a', 'b', 'c'] };
    const lines = [hook, { ...start('a'), at: 130 }, { ...start('a'), at: 150 }, { ...start('b'), at: 90 }];
    const wanted = { from: 0, to: 200, counts: () => true };
    expect(waitsOf(lines, wanted)).toEqual([30, 0, Infinity]);
    expect(waitsOf(lines, { ...wanted, from: 101 })).toEqual([]);
    expect(waitsOf(lines, { ...wanted, counts: (n) => n === 'a' })).toEqual([30]);
  });

  it.each([
    [[], 0.5, 0],
    [[3, 1, 2], 0.5, 2],
    [[3, 1, 2], 1, 3],
  ])('of %j: the quantile %s is %s', (values, share, expected) => {
    expect(quantile(values, share)).toBe(expected);
  });
});
