/** What one round does beside its scenario: when it is drained, who owns what, how pods ended, and what is filed as broken. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DrainWatch, freePartitions, newSlotRan, STALL_MS, type DrainLook, type DrainState } from './bench/drain.js';
import { storyOf, type EndedPod } from './bench/gather.js';
import { FAST_KINDS, missingKinds } from './bench/kinds.js';
import { Ledger, ledgerBytes, readLedgers, readSlots, type LedgerEvent, type LedgerLine } from './bench/ledger.js';
import { attempt, runRound, tooLittle } from './bench/run_round.js';

describe('the drain', () => {
  const MINUTE = 60_000;
  const look = (change: Partial<DrainLook>): DrainLook => ({
    at: 0,
    waiting: 0,
    bytes: 100,
    resting: false,
    expired: [],
    slotRan: true,
    ...change,
  });
  /** Looks until it is over or stuck, once every 500 ms; `of` says what is seen then. */
  function watch(
    of: (at: number) => Partial<DrainLook>,
    limit = MINUTE,
  ): { state: DrainState; at: number; of: DrainWatch } {
    const drain = new DrainWatch(0, limit);
    for (let at = 0; ; at += 500) {
      const state = drain.look(look({ at, ...of(at) }));
      if (state.is !== 'going') return { state, at, of: drain };
    }
  }

  it('is over when nothing waits and a new slot has run', () => {
    const { state, at, of } = watch((now) => ({ waiting: Math.max(0, 3 - now / 500), slotRan: now >= 3_000 }));
    expect(state).toEqual({ is: 'over' });
    expect([at, of.drainedMs]).toEqual([3_000, 1_500]);
  });

  it('is stuck with one row that never runs, three leases after the last movement', () => {
    const { state, at, of } = watch((now) => ({ waiting: now < 1_000 ? 2 : 1 }));
    expect(state).toEqual({ is: 'stuck', why: '1 rows still wait' });
    expect(at).toBe(1_000 + STALL_MS + 500);
    expect(of.stallMs).toBe(STALL_MS + 500);
  });

  it('goes on while runs are told, but not for ever', () => {
    const { state, at } = watch((now) => ({ waiting: 1, bytes: now }), 2 * STALL_MS);
    expect(state).toEqual({ is: 'stuck', why: '1 rows still wait' });
    expect(at).toBe(2 * STALL_MS + 500);
  });

  it('lets suspects wait for their turn, but not for ever', () => {
    const { state, at, of } = watch((now) => ({ waiting: now < 12_000 ? 1 : 0, resting: now < 12_000 }));
    expect([state, at, of.stallMs]).toEqual([{ is: 'over' }, 12_000, 0]);
    expect(watch(() => ({ waiting: 1, resting: true })).at).toBe(MINUTE + 500);
  });

  it('is stuck without a slot', () => {
    const { state, at } = watch(() => ({ slotRan: false }));
    expect(state).toEqual({ is: 'stuck', why: 'no slot of tick ran' });
    expect(at).toBe(STALL_MS + 500);
  });

  it('is stuck when nobody takes an expired claim back, though others move', () => {
    const { state, at } = watch((now) => ({ waiting: 1, bytes: now, expired: now >= 1_000 ? ['a'] : [] }));
    expect(state).toEqual({ is: 'stuck', why: 'nobody takes expired claims back: a' });
    expect(at).toBe(1_000 + STALL_MS + 500);
  });

  it('waits for the claim of a slot, and lets claims expire one after the other', () => {
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const { state, at } = watch((now) => ({ bytes: now, expired: names.slice(now / 3_000).slice(0, 1) }));
    expect(state).toEqual({ is: 'over' });
    expect(at).toBe(18_000);
  });
});

describe('ledgers', () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'sidelane-ledgers-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  const start = (n: string, run: number, slot?: string): LedgerEvent => ({
    what: 'start' as const,
    n,
    run,
    id: n,
    key: undefined,
    version: 0,
    attempt: 1,
    target: slot ? 'schedule:tick' : 'fast:batch',
    ...(slot && { slot }),
  });
  const end = (n: string, run: number): LedgerEvent => ({ what: 'end', n, run, result: 'ok' });

  it('do not grow with slots: those alone are no movement', () => {
    const ledger = new Ledger(folder, 'p1');
    ledger.write(start('a', 1));
    const before = ledgerBytes(folder);
    ledger.write(start('tick@1', 2, '1'));
    ledger.write(end('tick@1', 2));
    expect(ledgerBytes(folder)).toBe(before);
    ledger.write(end('a', 1));
    expect(ledgerBytes(folder)).toBeGreaterThan(before);
    const names = (lines: readonly LedgerLine[]): unknown[] => lines.map((line) => [line.what, 'n' in line && line.n]);
    expect(names(readSlots(folder))).toEqual([
      ['start', 'tick@1'],
      ['end', 'tick@1'],
    ]);
    expect(names(readLedgers(folder))).toEqual([
      ['start', 'a'],
      ['start', 'tick@1'],
      ['end', 'tick@1'],
      ['end', 'a'],
    ]);
  });

  it.each([
    ['a slot that started and ended after it', [5, 6], 'tick', true],
    ['a slot that started before it', [3, 6], 'tick', false],
    ['a slot that has not ended', [5], 'tick', false],
    ['a slot of another schedule', [5, 6], 'often', false],
  ])('tell of a slot after the healing: %s', (_, times, code, expected) => {
    const events = [start(`${code}@1`, 1, '1'), end(`${code}@1`, 1)];
    const lines = times.map(
      (at, index) => ({ ...events[index]!, target: `schedule:${code}`, at, pod: 'p1' }) as LedgerLine,
    );
    expect(newSlotRan(lines, 4)).toBe(expected);
  });

  it('tell of no new slot when an old one runs again', () => {
    const lines = [
      { ...start('tick@1', 1, '1'), at: 3, pod: 'p1' },
      { ...start('tick@1', 1, '1'), at: 5, pod: 'p2' },
      { ...end('tick@1', 1), at: 6, pod: 'p2' },
    ] as LedgerLine[];
    expect(newSlotRan(lines, 4)).toBe(false);
  });
});

describe('partitions after the drain', () => {
  const shares = (...owners: (string | null)[]) => owners.map((owner, partition) => ({ partition, owner }));

  it('are waited for until the living own all of them', async () => {
    const reads = [shares(null, 'h:1:a'), shares('h:2:a', 'h:1:a')];
    let read = 0;
    const wait = { read: () => Promise.resolve(reads[read++]!), pids: () => ['1', '2'], forMs: 5_000 };
    expect(await freePartitions(wait)).toEqual([]);
    expect(read).toBe(2);
  });

  it('that are free, or of somebody dead, are told when the time is over', async () => {
    const wait = { read: () => Promise.resolve(shares(null, 'h:1:a', 'h:9:a')), pids: () => ['1'], forMs: 0 };
    expect(await freePartitions(wait)).toEqual([
      { partition: 0, owner: null },
      { partition: 2, owner: 'h:9:a' },
    ]);
  });
});

describe('how a pod ended', () => {
  const killed = { at: 5, code: null, signal: 'SIGKILL' } as const;
  const failed = { at: 5, code: 1, signal: null };
  const inOrder = { at: 5, code: 0, signal: null };
  const pod = (change: Partial<EndedPod>): EndedPod => ({
    name: 'p1',
    end: inOrder,
    doomed: false,
    stopping: false,
    isUp: true,
    output: '',
    ...change,
  });
  const armed = { crash: {}, doomed: true };
  const poisoned: LedgerLine = { what: 'poisoned', n: 'a', at: 4, pod: 'p1' };

  it.each([
    ['it did not', pod({ end: undefined }), []],
    ['it was told to stop, and did', pod({ stopping: true }), []],
    ['it was told to stop before it was up', pod({ stopping: true, isUp: false, end: failed }), []],
    ['it was killed', pod({ doomed: true, end: killed }), []],
    ['it died at its point', pod({ ...armed, end: killed }), []],
    ['it died at its point on the way out', pod({ ...armed, stopping: true, end: killed }), []],
    ['its row killed it', pod({ end: killed }), [poisoned]],
  ])('%s: nothing to tell', (_, ended, lines) => {
    expect(storyOf(ended, lines).diedByItself).toBeUndefined();
  });

  it.each([
    ['it ended by itself', pod({}), []],
    ['somebody else killed it', pod({ end: killed }), []],
    ['it was told to stop and failed', pod({ stopping: true, end: failed }), []],
    ['it failed before it was killed', pod({ doomed: true, end: failed }), []],
    ['it was to die at its point and failed at boot', pod({ ...armed, end: failed, isUp: false }), []],
    ['it was to die at its point and stopped in order', pod({ ...armed, stopping: true }), []],
    ['its row was to kill it and it failed', pod({ end: failed }), [poisoned]],
    ['a row killed another one', pod({ end: killed }), [{ ...poisoned, pod: 'p2' }]],
  ])('%s: it died', (_, ended, lines) => {
    expect(storyOf(ended, lines).diedByItself).toMatch(/^code (0|1|null), signal/);
  });

  it('when', () => {
    expect(storyOf(pod({}), []).endedAt).toBe(5);
    expect(storyOf(pod({ end: undefined }), []).endedAt).toBe(Infinity);
  });
});

describe('a round', () => {
  it('that throws on its way is broken', async () => {
    const told: string[] = [];
    const world = { violated: (invariant: string, text: string) => void told.push(`${invariant} ${text}`) };
    expect(await attempt(world, 'died', 'boot', () => Promise.resolve())).toBe(true);
    expect(told).toEqual([]);
    expect(await attempt(world, 'died', 'boot', () => Promise.reject(new Error('no')))).toBe(false);
    expect(told).toEqual([expect.stringMatching(/^died boot: Error: no\n/)]);
  });

  it('whose pods never come up is broken, and keeps what they said', async () => {
    let folder = '';
    const report = await runRound(
      {
        name: 'no_boot',
        about: 'pods that cannot read a schedule',
        pods: 1,
        prepare: (world) => void (world.defaults = { schedules: [{ code: 'bad', cron: 'never', timezone: 'UTC' }] }),
        run: () => Promise.reject(new Error('must not be run')),
        release: (world) => Promise.resolve(void (folder = world.folder)),
      },
      '1',
    );
    try {
      expect(report.violations.slice(0, 2)).toEqual([
        { invariant: 'died', text: expect.stringMatching(/^boot: Error: p1 did not start/) },
        { invariant: 'died', text: expect.stringMatching(/^heal: Error: p2 did not start/) },
      ]);
      expect(readFileSync(join(folder, 'p2.log'), 'utf8')).toContain('never');
    } finally {
      rmSync(folder, { recursive: true });
    }
  }, 120_000);

  it('whose scenario throws is broken; it is healed, drained and judged all the same', async () => {
    let folder = '';
    const report = await runRound(
      {
        name: 'throws',
        about: 'a scenario that ends early',
        pods: 1,
        run: () => Promise.reject(new Error('ended early')),
        release: (world) => Promise.resolve(void (folder = world.folder)),
      },
      '1',
    );
    try {
      expect(report.violations.map(({ invariant }) => invariant)).toContain('scenario');
      expect(report.violations[0]!.text).toMatch(/^run: Error: ended early/);
      expect(report.violations.map(({ invariant }) => invariant)).not.toContain('drain');
      expect(report.drained_ms).toBeGreaterThan(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  }, 120_000);

  const ran = (...targets: string[]): LedgerLine[] =>
    targets.map((target) => ({ what: 'start', at: 0, pod: 'p1', n: target, target }) as unknown as LedgerLine);
  const all = ['fast:at_most_once', 'fast:batch', 'long:at_most_once', 'long:exclusive'];

  it.each([
    ['fast:at_most_once', 'fast, at most once'],
    ['fast:batch', 'fast, at least once'],
    ['long:at_most_once', 'long, at most once'],
    ['long:exclusive', 'long, at least once'],
  ])('without any run of %s says so, whatever else ran', (left, kind) => {
    const others = all.filter((target) => target !== left);
    const found = missingKinds(ran(...others, 'schedule:tick', 'lossy:seen', 'kafka:once', 'kafka:again'));
    expect(found.map(({ text }) => text)).toEqual([`no row was run that is ${kind}`]);
  });

  it('runs each lane in each mode, or what its scenario says', () => {
    expect(missingKinds(ran(...all))).toEqual([]);
    expect(missingKinds(ran('fast:at_most_once', 'fast:at_least_once'), FAST_KINDS)).toEqual([]);
    expect(missingKinds(ran('long:exclusive', 'fast:at_least_once'), FAST_KINDS)).toHaveLength(1);
  });

  it.each([
    [21, 11, []],
    [20, 11, ['only 20 rows were produced']],
    [21, 10, ['only 10 looks in 10 s: closed']],
  ])('of %s rows and %s looks in 10 s says something or not', (rows, looks, expected) => {
    const found = tooLittle(rows, { looks, failure: 'closed' }, 10);
    expect(found.map(({ text }) => text)).toEqual(expected);
  });
});
