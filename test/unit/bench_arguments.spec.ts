/** The command line of the benches, and what they print. */
import { describe, expect, it } from '@jest/globals';
import { parseArguments } from '../../scripts/bench/arguments.js';
import { asMarkdown, asText } from '../../scripts/bench/report.js';

const KNOWN = ['fast-lane', 'idle'];

describe('the arguments', () => {
  it('name benches, each once, in the order given', () => {
    expect(parseArguments(['idle', 'fast-lane', 'idle'], KNOWN)).toEqual({
      names: ['idle', 'fast-lane'],
      format: 'text',
      quick: false,
      scale: 1,
      rounds: 5,
    });
  });

  it('stand for all benches', () => {
    expect(parseArguments(['all', '--json'], KNOWN)).toMatchObject({ names: KNOWN, format: 'json' });
  });

  it('shrink a quick run to one round, unless told otherwise', () => {
    expect(parseArguments(['idle', '--quick'], KNOWN)).toMatchObject({ quick: true, rounds: 1 });
    expect(parseArguments(['idle', '--quick', '--rounds', '3'], KNOWN)).toMatchObject({ rounds: 3 });
  });

  it.each([
    [[]],
    [['--json']],
    [['fast']],
    [['idle', '--scale']],
    [['idle', '--scale', '0']],
    [['idle', '--scale', '-1']],
    [['idle', '--rounds', '1.5']],
    [['idle', '--rounds', '0']],
    [['idle', '--fast']],
  ])('%j are refused', (words) => expect(parseArguments(words, KNOWN)).toHaveProperty('fault'));
});

describe('the tables', () => {
  it('show what was missed', () => {
    const text = asMarkdown({
      bench: 'idle',
      cases: [{ name: '1 pod', value: 0.5, unit: 'commands/s', spread: [0.4, 0.6] }],
      ratios: [
        { name: 'a', value: 1, spread: [1, 2], must: '>= 2', reached: false },
        { name: 'c', value: 3, spread: [3, 3], must: '', reached: null },
      ],
      notes: ['quiet'],
    });
    expect(text).toContain('| a | **1** | 1 .. 2 | >= 2 | missed |');
    expect(text).toContain('| c | **3** | 3 .. 3 |  |  |');
    expect(text).toContain('| 1 pod | 0.5 | commands/s | 0.4 .. 0.6 |');
    expect(text).toContain('- quiet');
  });
});

describe('the report', () => {
  it('tells of each ratio whether it was reached', () => {
    const text = asText({
      bench: 'idle',
      cases: [{ name: '1 pod', value: 0.5, unit: 'commands/s', spread: [0.4, 0.6] }],
      ratios: [
        { name: 'a', value: 1, spread: [1, 1], must: '>= 2', reached: false },
        { name: 'b', value: 3, spread: [3, 3], must: '>= 2', reached: true },
        { name: 'c', value: 3, spread: [3, 3], must: '', reached: null },
      ],
      notes: ['quiet'],
    });
    expect(text.split('\n')).toEqual([
      '== idle',
      '1 pod  0.5 commands/s  (0.4 .. 0.6)',
      '-- ratios',
      'a  1  (1 .. 1)  must be >= 2: NOT REACHED',
      'b  3  (3 .. 3)  must be >= 2: reached',
      'c  3  (3 .. 3)',
      '   quiet',
    ]);
  });
});
