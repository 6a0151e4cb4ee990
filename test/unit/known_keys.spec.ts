import { describe, expect, it } from '@jest/globals';
import { KnownKeys } from '../../src/jobs/policy/known_keys.js';

const A = new Set(['a:a']);
const B = new Set(['b:b']);
const BOTH = new Set(['a:a', 'b:b']);

describe('known keys are expected', () => {
  it('until a target met none fifty times in a row, and again from the next one on', () => {
    const keys = new KnownKeys();
    for (let batch = 0; batch < 50; batch++) {
      expect(keys.expected(A)).toBe(true);
      keys.metNone(A);
    }
    expect(keys.expected(A)).toBe(false);
    keys.met(A);
    expect(keys.expected(A)).toBe(true);
    for (let batch = 0; batch < 49; batch++) keys.metNone(A);
    expect(keys.expected(A)).toBe(true);
  });

  it('of every target for itself, and of a batch where one of its targets expects them', () => {
    const keys = new KnownKeys();
    for (let batch = 0; batch < 50; batch++) keys.metNone(A);
    expect([keys.expected(A), keys.expected(B), keys.expected(BOTH)]).toEqual([false, true, true]);
  });
});
