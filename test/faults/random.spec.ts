import { describe, expect, it } from '@jest/globals';
import { Deck, SeededRandom } from './bench/random.js';

const draws = (seed: number | string, count = 50): number[] => {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => random.next());
};

describe('chance that can be repeated', () => {
  it('is the same for one seed and another one for the next', () => {
    expect(draws('poison 1')).toEqual(draws('poison 1'));
    expect(draws('poison 1')).not.toEqual(draws('poison 2'));
    expect(draws(1)).not.toEqual(draws(2));
    expect(new Set(draws('poison 1')).size).toBe(50);
  });

  it('stays what it was: a seed that stands in a report can be run again', () => {
    const random = new SeededRandom('clocks 1');
    expect([random.int(0, 99), random.int(0, 99), random.int(0, 99), random.int(0, 99)]).toEqual([34, 72, 69, 10]);
  });

  it('is spread over the whole range', () => {
    const all = draws('wide', 4_000);
    expect(all.every((draw) => draw >= 0 && draw < 1)).toBe(true);
    for (let tenth = 0; tenth < 10; tenth++) {
      const share = all.filter((draw) => Math.floor(draw * 10) === tenth).length / all.length;
      expect(share).toBeGreaterThan(0.07);
      expect(share).toBeLessThan(0.13);
    }
  });

  it('draws both ends of a range, and keeps to a share', () => {
    const random = new SeededRandom('ends');
    expect([...new Set(Array.from({ length: 200 }, () => random.int(3, 5)))].sort((a, b) => a - b)).toEqual([3, 4, 5]);
    const often = Array.from({ length: 2_000 }, () => random.chance(0.2)).filter(Boolean).length;
    expect(often).toBeGreaterThan(300);
    expect(often).toBeLessThan(500);
    expect([random.chance(0), random.chance(1)]).toEqual([false, true]);
  });

  it('shuffles without loss, and leaves the list as it was', () => {
    const list = [1, 2, 3, 4, 5, 6];
    const orders = Array.from({ length: 20 }, (_, seed) => new SeededRandom(seed).shuffle(list));
    for (const order of orders) expect([...order].sort((a, b) => a - b)).toEqual(list);
    expect(new Set(orders.map(String)).size).toBeGreaterThan(15);
    expect(list).toEqual([1, 2, 3, 4, 5, 6]);
    expect(list).toContain(new SeededRandom(1).pick(list));
  });

  it('deals every card before any comes again, and first those that were put back', () => {
    const deck = new Deck(new SeededRandom('deck'), ['a', 'a', 'b', 'c']);
    const hand = (count: number): string[] => Array.from({ length: count }, () => deck.deal());
    for (let round = 0; round < 5; round++) expect(hand(4).sort()).toEqual(['a', 'a', 'b', 'c']);
    const some = hand(3);
    deck.putBack(some);
    expect(hand(3).reverse()).toEqual(some);
    expect([...some, ...hand(1)].sort()).toEqual(['a', 'a', 'b', 'c']);
  });
});
