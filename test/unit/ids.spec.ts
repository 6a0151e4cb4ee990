import { describe, expect, it } from '@jest/globals';
import { sortableIds } from '../../src/common/ports/ids.js';

const V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

describe('sortable ids', () => {
  it('are UUIDs of version 7 that begin with their time', () => {
    const [id] = take(1, () => Date.UTC(2030, 0, 1));
    expect(id).toMatch(V7);
    expect(parseInt(id!.replaceAll('-', '').slice(0, 12), 16)).toBe(Date.UTC(2030, 0, 1));
  });

  it.each([
    ['the clock stands still, beyond what one millisecond counts', () => 1_800_000_000_000],
    ['the clock goes back', backwards(1_800_000_000_000)],
  ])('keep the order they were made in while %s', (_, wall) => {
    const ids = take(10_000, wall);
    expect(ids.every((id) => V7.test(id))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    expect(ids.toSorted()).toEqual(ids);
  });

  it('of two processes at one moment differ', () => {
    const still = (): number => 1_800_000_000_000;
    expect(new Set([...take(1_000, still), ...take(1_000, still)]).size).toBe(2_000);
  });
});

function take(count: number, wall: () => number): string[] {
  const next = sortableIds(wall);
  return Array.from({ length: count }, () => next());
}

function backwards(from: number): () => number {
  let now = from;
  return () => now--;
}
