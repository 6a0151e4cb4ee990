/** Rate limits for every input: never one start too many in any window, and no refused row forgotten. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { resolveJobsOptions } from '../../src/jobs/jobs.options.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import { takeBatch } from '../../src/jobs/policy/ordering.js';
import {
  cutAtRefused,
  rateKeyOf,
  slotTimes,
  takeSlots,
  type RateLimit,
  type TakenSlots,
} from '../../src/jobs/policy/rate_limit.js';
import { JobTargetsRegistry } from '../../src/jobs/targets/job_targets.registry.js';

const at = (ms: number): Date => new Date(ms);
const windows = fc.record({ limit: fc.integer({ min: 1, max: 7 }), window_ms: fc.integer({ min: 1, max: 60 }) });
/** Asks of several pods whose clocks are up to 5 ms off: the times need not grow. */
const asks = fc.array(
  fc.record({ after: fc.nat(40), off: fc.integer({ min: -5, max: 5 }), want: fc.integer({ min: 1, max: 9 }) }),
  { maxLength: 60 },
);

/** Most slots that any window of this length holds. A fullest window begins at one of them. */
function fullest(taken: readonly TakenSlots[], window_ms: number): number {
  const within = (from: number): number =>
    taken
      .filter((slots) => slots.at.getTime() >= from && slots.at.getTime() < from + window_ms)
      .reduce((sum, { n }) => sum + n, 0);
  return Math.max(0, ...taken.map((slots) => within(slots.at.getTime())));
}

describe('slots', () => {
  it('no window of any position holds more than the limit, and a slot that is free is given', () => {
    fc.assert(
      fc.property(windows, asks, (window, steps) => {
        let now = 1_000;
        let taken: readonly TakenSlots[] = [];
        const given: TakenSlots[] = [];
        for (const { after, off, want } of steps) {
          now += after;
          const answer = takeSlots(taken, window, at(now + off), want);
          if (answer.granted > 0) given.push({ at: answer.taken.at(-1)!.at, n: answer.granted });
          const used = answer.taken.reduce((sum, { n }) => sum + n, 0);
          expect(answer.granted === want || used === window.limit).toBe(true);
          expect(answer.taken.length).toBeLessThanOrEqual(window.limit);
          taken = answer.taken;
        }
        expect(fullest(given, window.window_ms)).toBeLessThanOrEqual(window.limit);
      }),
      { numRuns: 1_000 },
    );
  });

  it.each([
    ['is free again when the window is over', 1_000, 1],
    ['is taken until right before', 999, 0],
  ])('a slot %s', (_, later, granted) => {
    const taken = [{ at: at(0), n: 1 }];
    expect(takeSlots(taken, { limit: 1, window_ms: 1_000 }, at(later), 1).granted).toBe(granted);
  });

  it('a clock that is behind takes nothing back: what was forgotten at a later time stays counted with it', () => {
    const window = { limit: 1, window_ms: 100 };
    const ahead = takeSlots([{ at: at(0), n: 1 }], window, at(100), 1);
    expect(ahead).toEqual({ granted: 1, taken: [{ at: at(100), n: 1 }] });
    expect(takeSlots(ahead.taken, window, at(99), 1).granted).toBe(0);
    const early = takeSlots([{ at: at(50), n: 1 }], { limit: 2, window_ms: 100 }, at(40), 1);
    expect(early.taken).toEqual([{ at: at(50), n: 1 }, { at: at(50), n: 1 }]); // prettier-ignore
  });

  it('a limit that was lowered grants nothing until enough of them are free', () => {
    const taken = [{ at: at(0), n: 3 }, { at: at(10), n: 2 }]; // prettier-ignore
    expect(takeSlots(taken, { limit: 2, window_ms: 100 }, at(50), 4).granted).toBe(0);
    expect(takeSlots(taken, { limit: 2, window_ms: 100 }, at(105), 4).granted).toBe(0);
    expect(slotTimes(taken, { limit: 2, window_ms: 100 }, at(50), 2)).toEqual([at(110), at(110)]);
    expect(slotTimes(taken, { limit: 4, window_ms: 100 }, at(50), 2)).toEqual([at(100), at(100)]);
  });
});

describe('the times of refused rows', () => {
  it('each row that comes at its time gets a slot, in order, as long as nobody else asks', () => {
    fc.assert(
      fc.property(windows, asks, fc.integer({ min: 1, max: 30 }), (window, steps, rows) => {
        let now = 1_000;
        let taken: readonly TakenSlots[] = [];
        for (const { after, want } of steps) taken = takeSlots(taken, window, at((now += after)), want).taken;
        taken = takeSlots(taken, window, at(now), window.limit).taken; // full
        const times = slotTimes(taken, window, at(now), rows);
        expect(times).toHaveLength(rows);
        for (const time of times.slice(0, 5_000)) {
          expect(time.getTime()).toBeGreaterThan(now);
          const answer = takeSlots(taken, window, time, 1);
          expect(answer.granted).toBe(1);
          taken = answer.taken;
        }
      }),
    );
  });

  it('the first is when the first slot frees', () => {
    const taken = [{ at: at(30), n: 1 }, { at: at(10), n: 2 }]; // prettier-ignore
    const times = slotTimes(taken, { limit: 3, window_ms: 100 }, at(50), 5);
    expect(times.map((time) => time.getTime())).toEqual([110, 110, 130, 210, 210]);
  });

  it.each([
    ['a minute', { limit: 1, window_ms: 1_000 }, 500, 60_000],
    ['a window that is longer', { limit: 2, window_ms: 3_600_000 }, 100, 3_600_000],
  ])('none is later than %s, and a backlog is spread evenly', (_, window, rows, horizon) => {
    const taken = [{ at: at(0), n: window.limit }];
    const times = slotTimes(taken, window, at(0), rows).map((time) => time.getTime());
    expect(Math.max(...times)).toBeLessThanOrEqual(horizon);
    const counts = [...new Set(times)].map((time) => times.filter((other) => other === time).length);
    expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(window.limit);
  });
});

describe('a batch', () => {
  it('is cut per key at the first refused row, whatever stands behind it', () => {
    const refused = new Set(['a2', 'b1', 'b3']);
    expect(cutAtRefused([['a1', 'a2', 'a3'], ['b1', 'b2', 'b3'], ['c1']], (row) => refused.has(row))).toEqual({
      start: [['a1'], ['c1']],
      heads: ['a2', 'b1'],
    });
  });

  it('takes one row of each key where they would run one after the other', () => {
    const row = (order_key: string) => ({ order_key, next_run_at: at(0), crashes: 0, bytes: 1 });
    const [a, b, c, d] = [row('x'), row('x'), row('y'), row('y')] as const;
    const limits = { max_rows: 10, max_bytes: 100, max_per_key: 1 };
    expect(takeBatch([[a, b], [c, d]], limits, () => false)).toEqual({ batch: [[a], [c]], rest: [[b], [d]] }); // prettier-ignore
  });
});

describe('a rate key', () => {
  const of = (key: unknown): string => rateKeyOf({ key: (() => key) as RateLimit['key'], limit: 1, window_ms: 1 }, {} as Job); // prettier-ignore
  it('is a text', () => expect(of('tenant 7')).toBe('tenant 7'));
  it.each([undefined, null, 7, '', 'x'.repeat(501), 'a\0b', '\ud800', {}, Promise.resolve('x')])('is never %p', (key) =>
    expect(() => of(key)).toThrow(/^rate_limit\.key: expected a string/),
  );
});

describe('the declaration of a rate limit', () => {
  const key = (): string => 'k';
  const register = (rate_limit: unknown): void =>
    new JobTargetsRegistry(resolveJobsOptions({}, {})).register({
      name: 't:x',
      lane: 'fast',
      rate_limit: rate_limit as RateLimit,
      handler: () => Promise.resolve(),
    });

  it('is taken', () => expect(() => register({ key, limit: 1, window_ms: 1 })).not.toThrow());

  it.each<[string, unknown, RegExp]>([
    ['null', null, /expected \{key, limit, window_ms\}/],
    ['a number', 5, /expected \{key, limit, window_ms\}/],
    ['no key', { limit: 1, window_ms: 1 }, /key: expected a function/],
    ['a text as key', { key: 'k', limit: 1, window_ms: 1 }, /key: expected a function/],
    ['limit 0', { key, limit: 0, window_ms: 1 }, /limit: expected a whole number from 1/],
    ['half a limit', { key, limit: 1.5, window_ms: 1 }, /limit: expected a whole number from 1/],
    [
      'limit beyond its bound',
      { key, limit: 100_001, window_ms: 1 },
      /limit: expected a whole number from 1 to 100000/,
    ],
    ['no window', { key, limit: 1 }, /window_ms: expected a whole number/],
    ['window 0', { key, limit: 1, window_ms: 0 }, /window_ms: expected a whole number/],
    ['an endless window', { key, limit: 1, window_ms: Infinity }, /window_ms: expected a whole number/],
    ['an option nobody knows', { key, limit: 1, window_ms: 1, burst: 2 }, /burst: unknown option/],
  ])('is refused: %s', (_, rate_limit, message) => {
    expect(() => register(rate_limit)).toThrow(
      expect.objectContaining({ code: 'invalid_target', field: 'rate_limit', message: expect.stringMatching(message) }),
    );
  });
});
