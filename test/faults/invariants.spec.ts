/** The judge itself: each kind of broken promise is told from a ledger that shows it, and a ledger of good conduct is silent. */
import { describe, expect, it } from '@jest/globals';
import { judge, type Evidence, type LeftRow, type ScheduleStory, type SlotRow } from './bench/invariants.js';
import type { LedgerLine, RunStart } from './bench/ledger.js';
import { retriedJobs, untoldJobs } from './bench/lossy_account.js';
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
const admin = (action: 'retry' | 'skip' | 'cancel', n: string) => ({ action: `job.${action}`, n, id: n });

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
      audit: [admin('skip', 'c')],
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

  it.each([
    [2, []],
    [1, ['doubled']],
  ])('at most once: lets a row run again as often as an admin says so: %s times', (times, expected) => {
    const target = 'long:at_most_once';
    const runs = Array.from({ length: 3 }, () => start('a', { target, partition: undefined }));
    const lines = runs.flatMap((run) => [run, end(run)]);
    const audit = Array.from({ length: times }, () => admin('retry', 'a'));
    expect(kinds({ produced: [produced('a', target)], lines, audit })).toEqual(expected);
  });

  it('sees a start of a row that was gone by an admin, not one before that', () => {
    const run = start('a');
    const evidence = { produced: [produced('a')], lines: [run, end(run)], audit: [admin('cancel', 'a')] };
    expect(kinds({ ...evidence, removed: [{ n: 'a', at: run.at - 0.5 }] })).toEqual(['phantom']);
    expect(kinds({ ...evidence, removed: [{ n: 'a', at: run.at + 0.5 }] })).toEqual([]);
  });

  it('sees a hook that ran twice', () => {
    const run = start('a');
    const hook = (): LedgerLine => ({ what: 'hook', at: ++now, pod: 'p1', rows: ['a'] });
    const evidence = { produced: [produced('a')], lines: [hook(), run, end(run)] };
    expect(kinds(evidence)).toEqual([]);
    expect(kinds({ ...evidence, lines: [...evidence.lines, hook()] })).toEqual(['phantom']);
  });

  it('sees a version that first starts after a later one of its key', () => {
    const rows = [start('b', { key: 'k', version: 2 }), start('a', { key: 'k', version: 1 })];
    const lines = [...rows, ...rows.map((row) => end(row))].sort((x, y) => x.at - y.at);
    expect(kinds({ produced: [produced('a'), produced('b')], lines })).toEqual(['order']);
  });

  describe('of a key whose first version runs again after the second one', () => {
    const key = { key: 'k', term: 'a' };
    const [v1, v2] = [
      { ...key, version: 1 },
      { ...key, version: 2 },
    ];
    const rows = (target: string) => [produced('a', target), produced('b', target)];
    /** The first run of a, b beside or after it, and a again on another pod. */
    const story = (change: {
      target?: string;
      result?: 'ok' | 'failed' | 'unreachable';
      beside?: boolean;
      second?: Partial<RunStart> & { pod?: string };
    }): LedgerLine[] => {
      const { target = 'fast:at_least_once', result, beside = false, second = {} } = change;
      const a = start('a', { ...v1, target });
      const ended = result && !beside ? [end(a, result)] : [];
      const b = start('b', { ...v2, target, ...second });
      const late = result && beside ? [end(a, result)] : [];
      const again = start('a', { ...v1, target, term: 'b', pod: 'p2' });
      const followed = start('b', { ...v2, target, term: 'b', pod: 'p2' });
      return [a, ...ended, b, ...late, again, end(again), followed, end(followed)];
    };

    it.each([
      ['failed', { result: 'failed' as const }, ['order']],
      ['was not sent', { result: 'unreachable' as const }, ['order']],
      ['had not ended', {}, ['order']],
      ['ended only then', { result: 'ok' as const, beside: true }, ['order']],
      ['ended well, on another pod', { result: 'ok' as const, second: { pod: 'p3' } }, ['order']],
      ['ended well, in another term', { result: 'ok' as const, second: { term: 'c' } }, ['order']],
      ['ended well under the same mark, which its pod did not outlive', { result: 'ok' as const }, []],
    ])('judges a start of the second while the first %s', (_, change, expected) => {
      expect(kinds({ produced: rows('fast:at_least_once'), lines: story(change) })).toEqual(expected);
    });

    it.each([
      ['goes in the same call', { beside: true, result: 'failed' as const }, []],
      ['comes after the call in which the first one failed', { result: 'failed' as const }, ['order']],
      ['comes after the call in which the first one ended well', { result: 'ok' as const }, ['order']],
    ])('batches: judges a second one that %s', (_, change, expected) => {
      const target = 'fast:batch';
      expect(kinds({ produced: rows(target), lines: story({ target, ...change }) })).toEqual(expected);
    });

    it.each([
      ['in one call, of which the first failed', true, []],
      ['in a call after the one in which it failed', false, ['order']],
    ])('at most once: judges two rows of a batch %s', (_, together, expected) => {
      const target = 'fast:batch:at_most_once';
      const a = start('a', { ...v1, target });
      const failed = together ? [] : [end(a, 'failed')];
      const b = start('b', { ...v2, target });
      const late = together ? [end(a, 'failed')] : [];
      const again = start('a', { ...v1, target });
      const lines = [a, ...failed, b, ...late, end(b), again, end(again)];
      expect(kinds({ produced: rows(target), lines })).toEqual(expected);
    });

    it('at most once: sees rows of a batch that go out again with their takeover', () => {
      const target = 'fast:batch:at_most_once';
      const runs = ['a', 'b'].flatMap((term) => [
        start('a', { ...v1, target, term }),
        start('b', { ...v2, target, term }),
      ]);
      const lines = [...runs, ...runs.slice(2).map((run) => end(run))];
      expect(kinds({ produced: rows(target), lines })).toEqual(['doubled', 'doubled']);
    });

    it('lets several rows of one mark be sent again, and again', () => {
      const lines: LedgerLine[] = [];
      for (const [pod, term] of ['a', 'b', 'c'].map((name) => [`p ${name}`, name])) {
        for (const [n, version] of ['a', 'b', 'c'].map((name, index) => [name, index + 1] as const)) {
          const run = start(n, { key: 'k', version, pod, term });
          lines.push(run, end(run));
        }
      }
      expect(kinds({ produced: ['a', 'b', 'c'].map((n) => produced(n)), lines })).toEqual([]);
    });

    it.each([
      [1, []],
      [0, ['order']],
    ])('lets others pass a DEAD row as often as an admin brings it back: %s times', (times, expected) => {
      const audit = Array.from({ length: times }, () => admin('retry', 'a'));
      const lines = story({ result: 'failed' });
      expect(kinds({ produced: rows('fast:at_least_once'), lines, audit })).toEqual(expected);
    });

    it('judges a row that an admin brought back like any other afterwards', () => {
      const lines: LedgerLine[] = [];
      for (const [n, version] of [
        ['a', 1],
        ['b', 2],
        ['a', 1],
        ['c', 3],
        ['a', 1],
      ] as const) {
        const run = start(n, { key: 'k', version });
        lines.push(run, end(run, n === 'a' && lines.length < 8 ? 'failed' : 'ok'));
      }
      const evidence = { produced: ['a', 'b', 'c'].map((n) => produced(n)), lines };
      expect(kinds({ ...evidence, audit: [admin('retry', 'a')] })).toEqual(['order']);
      expect(kinds({ ...evidence, audit: [admin('retry', 'a'), admin('retry', 'a')] })).toEqual([]);
    });

    it('holds Kafka to first arrivals', () => {
      const target = 'kafka:again';
      const kafka = { target, key: 'k', partition: undefined, term: undefined };
      const runs = [1, 2, 1].map((version) => start(version === 1 ? 'a' : 'b', { ...kafka, version }));
      const lines = runs.flatMap((run) => [run, end(run)]);
      expect(kinds({ produced: rows(target), lines })).toEqual([]);
      expect(kinds({ produced: rows(target), lines: lines.slice(2) })).toEqual(['order']);
    });

    it('leaves out a record of at most once whose end is unknown: it may arrive late', () => {
      const target = 'kafka:once';
      const kafka = { target, key: 'k', partition: undefined, term: undefined };
      const runs = [start('b', { ...kafka, version: 2 }), start('a', { ...kafka, version: 1 })];
      const lines = runs.flatMap((run) => [run, end(run)]);
      expect(kinds({ produced: rows(target), lines, left: [dead('a', target)] })).toEqual([]);
    });
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
    ['long:at_least_once', -1, ['owner']],
    ['schedule:tick', -1, ['owner']],
    ['long:at_least_once', 0, []],
    ['lossy:seen', -1, []],
  ])('long lane: judges a start of %s whose claim had %s ms left', (target, room, expected) => {
    const run = start('a', { target, room, partition: undefined, term: undefined });
    expect(kinds({ produced: [produced('a', target)], lines: [run, end(run)] })).toEqual(expected);
  });

  it.each([
    ['after a look had seen the next term', 'a', -0.5, ['owner']],
    ['before that look was over', 'a', 0.5, []],
    ['in the newest term', 'b', -0.5, []],
    ['in a term that no look saw', 'c', -0.5, []],
  ])('judges a start %s', (_, term, after, expected) => {
    const run = start('a', { term });
    const seen = (name: string, at: number, partition = 0) => ({ partition, term: name, at });
    const terms = [seen('a', 0), seen('x', 0, 1), seen('b', run.at + after), seen('y', 0, 1)];
    expect(kinds({ produced: [produced('a')], lines: [run, end(run)], terms })).toEqual(expected);
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

  it('sees a chain that ended without its next row, and a row that stands beside its next one', () => {
    const run = start('a');
    const next = start('a+');
    const first = produced('a', 'fast:at_least_once', 'complete');
    const both = { produced: [first, produced('a+')], lines: [run, end(run), next, end(next)] };
    expect(kinds(both)).toEqual([]);
    expect(kinds({ ...both, produced: [first], lines: [run, end(run)] })).toEqual(['chain']);
    const stands = { ...dead('a', 'fast:at_least_once'), status: 'PENDING' };
    expect(kinds({ ...both, left: [stands] })).toEqual(['chain']);
    // A failed end says nothing: the reply of the commit may be lost.
    const failed = start('a');
    const lines = [failed, end(failed, 'failed'), run, end(run), next, end(next)].sort((x, y) => x.at - y.at);
    expect(kinds({ ...both, lines })).toEqual([]);
  });

  it.each([
    ['that runs well', [], [], ['mourning']],
    ['that an admin brought back', [admin('retry', 'a')], [], []],
    ['that an admin brought back, and is DEAD again', [admin('retry', 'a')], [dead('a', 'x')], ['mourning']],
    ['that an admin took away', [admin('skip', 'a')], [], []],
    ['that an admin called off before', [admin('cancel', 'a')], [], ['mourning']],
  ])('judges one mourning of a row %s', (_, audit, left, expected) => {
    const target = 'long:at_least_once';
    const run = start('a', { target, partition: undefined });
    const rows = { produced: [produced('a', target)], left: left.map((row) => ({ ...row, target })) };
    expect(kinds({ ...rows, lines: [run, end(run)], audit, mourned: ['a'] })).toEqual(expected);
  });

  it.each([
    ['the target is down', ['dead']],
    ['in flight when its partition was taken over', []],
  ])('at most once: judges a death of "%s"', (last_error, expected) => {
    const target = 'long:at_most_once';
    const left = [{ ...dead('a', target), last_error }];
    expect(kinds({ produced: [produced('a', target)], left })).toEqual(expected);
  });

  it.each([
    [1_000, ['release']],
    [6_000, []],
  ])('sees a run that a clean stop cut off after %s ms', (after, expected) => {
    const run = start('a', { target: 'long:at_least_once', partition: undefined });
    const stopped: LedgerLine = { what: 'stopped', at: run.at + after, pod: 'p1' };
    const [again, left] = [end(run), { ...dead('a', 'long:at_least_once'), status: 'PENDING' }];
    const evidence = { produced: [produced('a', 'long:at_least_once')], left: [left] };
    expect(kinds({ ...evidence, lines: [run, stopped] })).toEqual(expected);
    expect(kinds({ ...evidence, lines: [run, again, stopped] })).toEqual([]);
    expect(kinds({ ...evidence, lines: [run, { ...stopped, pod: 'p2' }] })).toEqual([]);
  });

  describe('of a calm round', () => {
    const claimed = { target: 'long:at_least_once', partition: undefined, room: 900 };
    const rows = [produced('a', claimed.target)];
    const both = (evidence: Partial<Evidence>): [string[], string[]] => [
      kinds({ produced: rows, ...evidence, calm: true }),
      kinds({ produced: rows, ...evidence }),
    ];

    it('sees a row that runs again after a good end, not one that failed', () => {
      const one = start('a', claimed);
      const [good, failed] = [end(one), end(one, 'failed')];
      const two = start('a', claimed);
      expect(both({ lines: [one, good, two, end(two)] })).toEqual([['calm'], []]);
      expect(both({ lines: [one, failed, two, end(two)] })).toEqual([[], []]);
    });

    it('excuses no run beside another one of the same row by what the claim had left', () => {
      const [one, two] = [start('a', claimed), start('a', claimed)];
      expect(both({ lines: [one, two, end(one), end(two)] })).toEqual([['exclusive', 'calm'], []]);
    });

    it('sees what was reclaimed, a business transaction that failed, and who died', () => {
      const run = start('a', claimed);
      const good = [run, end(run)];
      const told: LedgerLine[] = [
        { what: 'reclaimed', at: ++now, pod: 'p1', rows: 1 },
        { what: 'business', at: ++now, pod: 'p1', ms: 1, error: 'away' },
      ];
      expect(both({ lines: [...good, ...told] })).toEqual([['calm', 'calm'], []]);
      expect(both({ lines: [...good, { what: 'business', at: ++now, pod: 'p1', ms: 1 }] })).toEqual([[], []]);
      const target = 'long:at_most_once';
      const death = { produced: [produced('b', target)], left: [dead('b', target)] };
      expect(both(death)).toEqual([['calm'], []]);
      expect(both({ ...death, expectDead: () => true })).toEqual([[], []]);
    });
  });

  describe('of schedules', () => {
    const at = (seconds: number): string => new Date(seconds * 1_000).toISOString();
    const tick = (change: Partial<ScheduleStory>): ScheduleStory => {
      return { code: 'tick', slots: [at(2)], skipped: [], next_run_at: at(4), ...change };
    };
    const row = (status: string): SlotRow => ({ id: '1', code: 'tick', slot: at(2), status });
    const slot = { target: 'schedule:tick', slot: at(2), partition: undefined, term: undefined };
    const ran = (result: 'ok' | 'failed'): LedgerLine[] => {
      const run = start('tick@2', slot);
      return [run, end(run, result)];
    };

    it.each([
      ['ran', tick({}), { lines: ran('ok') }, []],
      ['stands', tick({}), { slot_rows: [row('PENDING')] }, []],
      ['was skipped', tick({ skipped: [at(2)] }), {}, []],
      ['came so late that a newer one was told as skipped', tick({ skipped: [at(63)] }), {}, []],
      ['only failed', tick({}), { lines: ran('failed') }, ['slot']],
      ['is gone', tick({ skipped: [at(1), at(4)] }), {}, ['slot']],
    ])('judges a slot that %s', (_, schedule, evidence, expected) => {
      expect(kinds({ ...evidence, schedules: [schedule] })).toEqual(expected);
    });

    it.each([
      ['DEAD', tick({}), () => false, ['slot']],
      ['DEAD as expected', tick({}), () => true, []],
      ['RUNNING while its schedule went on', tick({ slots: [at(2), at(16)] }), () => false, ['slot']],
      ['RUNNING', tick({}), () => false, []],
    ])('judges a slot that is %s', (status, schedule, expectDead, expected) => {
      const slot_rows = [
        row(status.split(' ')[0]!),
        ...schedule.slots.slice(1).map((next) => ({ ...row('PENDING'), slot: next })),
      ];
      expect(kinds({ schedules: [schedule], slot_rows, expectDead })).toEqual(expected);
    });

    it('sees a schedule without a next slot', () => {
      const { next_run_at: _, ...ended } = tick({ slots: [] });
      expect(kinds({ schedules: [ended] })).toEqual(['slot']);
    });
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

  it('sees a lossy job that is tried again after it failed, and no other row', () => {
    const tried = (n: string, target: string): LedgerLine[] => {
      const first = start(n, { target, partition: undefined });
      return [first, end(first, 'failed'), start(n, { target, partition: undefined })];
    };
    const once = [start('c', { target: 'lossy:seen' }), start('d', { target: 'lossy:seen' })];
    const lines = [...tried('a', 'lossy:seen'), ...tried('b', 'long:at_least_once'), ...once];
    expect(retriedJobs(lines)).toEqual([{ invariant: 'lossy', text: 'a ran 2 times: p1, p1' }]);
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
