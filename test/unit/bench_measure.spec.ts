/** How the benches turn rounds into figures. */
import { describe, expect, it } from '@jest/globals';
import {
  boundOf,
  caseOf,
  casesOf,
  interleave,
  judged,
  median,
  percentile,
  ratioOf,
  tidy,
  type Side,
} from '../../scripts/bench/measure.js';

const side = (name: string, said: string[], values: number[]): Side => ({
  name,
  unit: 'rows/s',
  round: () => {
    said.push(name);
    return Promise.resolve({ value: values.shift()!, counts: { commands: said.length } });
  },
});

describe('interleave', () => {
  it('lets the sides take turns, and forgets the warm-up', async () => {
    const said: string[] = [];
    const [a, b] = await interleave([side('a', said, [999, 1, 2]), side('b', said, [999, 10, 20])], {
      warmups: 1,
      rounds: 2,
    });
    expect(said).toEqual(['a', 'b', 'a', 'b', 'a', 'b']);
    expect(a!.values).toEqual([1, 2]);
    expect(b!.values).toEqual([10, 20]);
    expect(a!.counts).toEqual({ commands: [3, 5] });
  });

  it('ends with the error of a side', async () => {
    const broken: Side = { name: 'x', unit: 'ms', round: () => Promise.reject(new Error('lost rows')) };
    await expect(interleave([broken], { warmups: 0, rounds: 1 })).rejects.toThrow('lost rows');
  });
});

describe('the middle of the rounds', () => {
  it.each([
    [[3, 1, 2], 2],
    [[4, 1, 3, 2], 2.5],
    [[7], 7],
  ])('of %j is %d', (values, middle) => expect(median(values)).toBe(middle));

  it('is nothing without rounds', () => expect(median([])).toBeNaN());

  it.each([
    [50, 50],
    [99, 99],
    [100, 100],
    [0, 1],
  ])('the %d. percentile of 1 to 100 is %d', (percent, value) => {
    const values = Array.from({ length: 100 }, (_, i) => 100 - i);
    expect(percentile(values, percent)).toBe(value);
  });
});

describe('a ratio', () => {
  it('is taken round by round, so that a slow spell of the machine cancels out', () => {
    const ratio = ratioOf('a / b', [100, 10, 50], [50, 5, 25], 2);
    expect(ratio).toEqual({ name: 'a / b', value: 2, spread: [2, 2], must: '>= 2', reached: true });
  });

  it('is missed below what it must reach', () => {
    expect(ratioOf('a / b', [1], [2], 0.7)).toMatchObject({ value: 0.5, reached: false });
  });

  it('is not judged where nothing is demanded', () => {
    expect(ratioOf('a / b', [1], [2])).toMatchObject({ must: '', reached: null });
  });

  it('is judged before it is rounded', () => {
    expect(judged('x', [0.69996], { least: 0.7 })).toMatchObject({ value: 0.7, reached: false });
  });

  it('that cannot be told is missed', () => {
    expect(ratioOf('a / b', [], [], 0.7).reached).toBe(false);
    expect(boundOf('x', [], 1).reached).toBe(false);
  });
});

describe('a bound', () => {
  it('is reached at its value, and missed above', () => {
    expect(boundOf('commands', [0.05], 0.05)).toMatchObject({ must: '<= 0.05', reached: true });
    expect(boundOf('commands', [0.051], 0.05)).toMatchObject({ reached: false });
  });
});

describe('cases', () => {
  it('tell median and spread, and one line per count', () => {
    const cases = casesOf({ name: 'product', unit: 'rows/s', values: [1, 3, 2], counts: { 'commands/row': [0.1] } });
    expect(cases).toEqual([
      { name: 'product', value: 2, unit: 'rows/s', spread: [1, 3] },
      { name: 'product: commands/row', value: 0.1, unit: 'commands/row', spread: [0.1, 0.1] },
    ]);
  });

  it('keep three digits', () => {
    expect(caseOf('a', 'ms', [1234.56]).value).toBe(1235);
    expect([tidy(0.033456), tidy(12.3456), tidy(-150.4), tidy(Infinity)]).toEqual([0.0335, 12.3, -150, Infinity]);
  });
});
