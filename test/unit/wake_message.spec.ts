import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { decodeWake, encodeWake, MAX_CELLS, PendingCells, wakeChannel } from '../../src/jobs/wake_up/wake_message.js';

const cell = fc.record({
  lane: fc.constantFrom('fast' as const, 'long' as const),
  target: fc.string({ minLength: 1, maxLength: 20 }).filter((name) => !/\s/.test(name)),
  partition: fc.nat({ max: 4095 }),
});
const byText = (cells: readonly object[]): string[] =>
  cells.map((each) => JSON.stringify(each, ['lane', 'target', 'partition'])).sort();

describe('a wake-up message', () => {
  it('says to others what was said to it, whatever the cells', () => {
    fc.assert(
      fc.property(fc.array(cell, { maxLength: MAX_CELLS }), (cells) => {
        const read = decodeWake(encodeWake({ from: 'a:1:b', cells }))!;
        expect(read.from).toBe('a:1:b');
        expect(byText(read.cells as object[])).toEqual(byText(cells));
      }),
    );
  });

  it('is small: a commit of one row is one short line', () => {
    const cells = [{ lane: 'fast' as const, target: 'orders:announce', partition: 17 }];
    expect(encodeWake({ from: 'p', cells })).toBe('{"from":"p","cells":[["fast","orders:announce",17]]}');
    expect(wakeChannel('shop')).toBe('sidelane:shop:wake');
  });

  it.each([
    '',
    'null',
    '5',
    '[]',
    '{',
    '{}',
    '{"from":1,"cells":"all"}',
    '{"from":"a"}',
    '{"from":"a","cells":"some"}',
    '{"from":"a","cells":[5]}',
    '{"from":"a","cells":[["slow","t",1]]}',
    '{"from":"a","cells":[["fast",{"$gt":1},1]]}',
    '{"from":"a","cells":[["fast","t","1"]]}',
    '{"from":"a","cells":[["fast","t",1.5]]}',
    JSON.stringify({ from: 'a', cells: [['fast', 't', ...Array(MAX_CELLS + 1).keys()]] }),
    JSON.stringify({ from: 'a'.repeat(70_000), cells: 'all' }),
  ])('that is none (%.60s) reads as undefined', (text) => expect(decodeWake(text)).toBeUndefined());

  it('never throws, whatever comes in', () => {
    fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void decodeWake(text)));
  });
});

describe('cells waiting to be told', () => {
  const named = (count: number): { lane: 'fast'; target: string; partition: number }[] =>
    Array.from({ length: count }, (_, partition) => ({ lane: 'fast', target: 't', partition }));

  it('are told once each, and are gone then', () => {
    const pending = new PendingCells();
    pending.add(named(3));
    pending.add(named(2));
    expect(pending.take()).toHaveLength(3);
    expect(pending.empty).toBe(true);
    expect(pending.take()).toEqual([]);
  });

  it('become "all" beyond their bound, and names again after that', () => {
    const pending = new PendingCells();
    pending.add(named(MAX_CELLS));
    expect(pending.take()).toHaveLength(MAX_CELLS);
    pending.add(named(MAX_CELLS + 1));
    pending.add(named(1));
    expect(pending.empty).toBe(false);
    expect(pending.take()).toBe('all');
    pending.add(named(1));
    expect(pending.take()).toHaveLength(1);
  });
});
