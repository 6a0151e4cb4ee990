/** Which rows a pod claims, and what becomes of them when it dies: rules that hold for every input. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import {
  freePlaces,
  heldPlace,
  ownShare,
  placeOf,
  planClaims,
  type Candidate,
} from '../../src/jobs/policy/claim_plan.js';
import { judgeExpired } from '../../src/jobs/policy/reclaim.js';
import { retryDelayMs, retryPolicyFault } from '../../src/jobs/policy/retry.js';

const candidates = fc
  .array(
    fc.record({
      target: fc.constantFrom('a', 'b', 'c'),
      code: fc.constantFrom('x', 'y', 'z'),
      priority: fc.constantFrom(1, 2, 3),
      next_run_at: fc.integer({ min: 0, max: 5 }).map((ms) => new Date(ms)),
    }),
    { maxLength: 40 },
  )
  .map((rows): Candidate[] =>
    rows.map((row, index) => ({ ...row, _id: { toHexString: () => String(index).padStart(4, '0') } })),
  );

const limits = fc.record({
  slots: fc.integer({ min: 0, max: 20 }),
  perTarget: fc.record({ a: fc.nat(10), b: fc.nat(10) }).map((places) => new Map(Object.entries(places))),
  maxRunning: fc.constantFrom(new Map<string, number>(), new Map([['a', 1]]), new Map([['a', 2]])),
  running: fc.record({ x: fc.nat(2), y: fc.nat(2) }).map((taken) => new Map(Object.entries(taken))),
});

describe('a plan of claims', () => {
  it('keeps within slots, places per target and places per code', () => {
    fc.assert(
      fc.property(candidates, limits, (rows, limit) => {
        const chosen = planClaims(rows, limit);
        expect(chosen.length).toBeLessThanOrEqual(limit.slots);
        for (const target of ['a', 'b', 'c']) {
          const count = chosen.filter((row) => row.target === target).length;
          expect(count).toBeLessThanOrEqual(limit.perTarget.get(target) ?? 0);
        }
        for (const [target, most] of limit.maxRunning) {
          for (const code of ['x', 'y', 'z']) {
            const count = chosen.filter((row) => row.target === target && row.code === code).length;
            expect(count).toBeLessThanOrEqual(Math.max(0, most - (limit.running.get(code) ?? 0)));
          }
        }
      }),
    );
  });

  it('never leaves out a row that is more urgent than one it chose, unless a limit of its target or code says so', () => {
    fc.assert(
      fc.property(candidates, fc.integer({ min: 0, max: 20 }), (rows, slots) => {
        const open = {
          slots,
          perTarget: new Map(['a', 'b', 'c'].map((name) => [name, 100])),
          maxRunning: new Map(),
          running: new Map(),
        };
        const chosen = planClaims(rows, open);
        expect(chosen).toHaveLength(Math.min(slots, rows.length));
        const least = chosen.at(-1);
        const passedOver = rows.filter((row) => !chosen.includes(row));
        if (least) expect(passedOver.every((row) => row.priority <= least.priority)).toBe(true);
      }),
    );
  });
});

describe('the share of a pod', () => {
  const rows = (count: number): Candidate[] =>
    Array.from({ length: count }, (_, index) => ({
      _id: { toHexString: () => index.toString(16).padStart(24, '0') },
      target: 'a',
      code: 'x',
      priority: 2,
      next_run_at: new Date(0),
    }));

  it('shares of all pods are apart and add up to what they read, while it is enough for all', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 50 }), (count, slots) => {
        const read = rows(slots * count);
        const shares = Array.from({ length: count }, (_, rank) => ownShare(read, slots, { rank, count }));
        expect(new Set(shares.flat()).size).toBe(read.length);
        expect(shares.flat()).toHaveLength(read.length);
      }),
    );
  });

  it('a pod whose share is too small for half of its slots takes whatever there is', () => {
    const read = rows(6);
    expect(ownShare(read, 10, { rank: 0, count: 2 })).toEqual(read);
    expect(ownShare(read, 6, { rank: 0, count: 2 })).toHaveLength(3);
  });
});

describe('places of a code', () => {
  it('are the code itself, then numbered, without those that are taken', () => {
    expect([1, 2, 3].map((place) => placeOf('code', place))).toEqual(['code', 'code\0' + '2', 'code\0' + '3']);
    expect(freePlaces('code', 3, new Set([placeOf('code', 2)]))).toEqual(['code', placeOf('code', 3)]);
    expect(freePlaces('code', 1, new Set(['code']))).toEqual([]);
  });

  it('are told by the code that holds them, whether its pod separates by NUL or, as older ones, by #', () => {
    const codes = fc.constantFrom('a', 'a#2', 'a#2#2', '#', '#2');
    fc.assert(
      fc.property(codes, codes, fc.integer({ min: 1, max: 99 }), fc.integer({ min: 1, max: 99 }), (a, b, m, n) => {
        expect(placeOf(a, m) === placeOf(b, n)).toBe(a === b && m === n);
        expect(heldPlace(a, placeOf(a, m))).toBe(placeOf(a, m));
        expect(heldPlace(a, m === 1 ? a : `${a}#${m}`)).toBe(placeOf(a, m));
      }),
    );
  });
});

describe('an expired lease', () => {
  it('ends an at-most-once row, and an at-least-once row at max_crashes only', () => {
    fc.assert(
      fc.property(fc.nat(10), fc.integer({ min: 1, max: 10 }), (crashes, most) => {
        expect(judgeExpired('at_most_once', crashes, most).do).toBe('dead');
        expect(judgeExpired('at_least_once', crashes, most)).toMatchObject({
          do: crashes + 1 >= most ? 'dead' : 'count',
          crashes: crashes + 1,
        });
      }),
    );
  });
});

describe('exponential retries', () => {
  const policies = fc
    .record({ base_ms: fc.integer({ min: 1, max: 10 ** 7 }), more: fc.nat(10 ** 9) })
    .map(({ base_ms, more }) => ({ base_ms, cap_ms: base_ms + more }));
  const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  it('wait at least half and at most all of the doubled delay, within the cap', () => {
    fc.assert(
      fc.property(policies, fc.integer({ min: 1, max: 1000 }), chance, (policy, attempts, random) => {
        const whole = Math.min(policy.cap_ms, policy.base_ms * 2 ** Math.min(attempts - 1, 60));
        const delay = retryDelayMs(attempts, policy, random);
        expect(delay).toBeGreaterThanOrEqual(Math.floor(whole / 2));
        expect(delay).toBeLessThanOrEqual(Math.ceil(whole));
        expect(Number.isFinite(new Date(delay).getTime())).toBe(true);
      }),
    );
  });

  it.each([
    [{ base_ms: 0, cap_ms: 10 }, 'base_ms'],
    [{ base_ms: 10, cap_ms: 5 }, 'cap_ms'],
    [{ base_ms: Number.NaN, cap_ms: 5 }, 'base_ms'],
    [{ delays_ms: [], jitter: 0 }, 'delays_ms'],
    [{ delays_ms: [-1], jitter: 0 }, 'delays_ms'],
    [{ delays_ms: [1], jitter: 2 }, 'jitter'],
  ])('%j is refused with the name of its fault', (policy, field) => {
    expect(retryPolicyFault(policy)).toMatch(new RegExp(`^${field}:`));
  });
});
