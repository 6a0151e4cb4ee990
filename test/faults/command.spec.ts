/** The command of the bench: what it is asked for, what it tells, and what it remembers of an interrupted run. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArguments } from '../../scripts/faults/arguments.js';
import { asTable, asText } from '../../scripts/faults/report.js';
import { RoundsFile } from '../../scripts/faults/rounds_file.js';
import type { RoundReport } from './bench/scenario.types.js';

const report = (change: Partial<RoundReport> = {}): RoundReport => ({
  scenario: 'poison',
  seed: '1',
  length: 1,
  code: 'c1',
  rows: 10,
  runs: 12,
  faults: 2,
  schedule: ['a fault'],
  lost: 0,
  doubled: 0,
  out_of_order: 0,
  dead: 1,
  repeated: 0,
  drained_ms: 400,
  longest_stall_ms: 1_250,
  looks: 20,
  seconds: 9,
  violations: [],
  ...change,
});

describe('the arguments of npm run faults', () => {
  it('are scenarios and how to run them', () => {
    const words = 'poison --seed 3 --rounds 20 --length 2 --parallel 2 --into a.jsonl --markdown'.split(' ');
    expect(parseArguments(words, ['poison', 'clocks'])).toEqual({
      names: ['poison'],
      seed: 3,
      rounds: 20,
      length: 2,
      parallel: 2,
      into: 'a.jsonl',
      markdown: true,
      json: false,
    });
  });

  it.each([
    ['', 'which scenario?'],
    ['all --rounds 0', '--rounds: expected a whole number from 1'],
    ['all --parallel x', '--parallel: expected a whole number from 1'],
    ['all --into', '--into: expected the name of a file'],
    ['all --into --json', '--into: expected the name of a file'],
    ['nothing', 'there is no scenario "nothing"'],
  ])('"%s" is refused', (words, fault) => {
    expect(parseArguments(words.split(' ').filter(Boolean), ['poison'])).toEqual({ fault });
  });
});

describe('the report of rounds', () => {
  it('says what was broken', () => {
    const text = asText(report({ violations: [{ invariant: 'lost', text: 'a is gone' }] }));
    expect(text).toMatch(/^poison seed 1: .*rows 10, .*\n {2}BROKEN lost: a is gone$/s);
  });

  it('sums up by scenario, in the order given, and over all', () => {
    const reports = [
      report({ longest_stall_ms: 100 }),
      report({ seed: '2', lost: 1, violations: [{ invariant: 'lost', text: 'a' }] }),
      report({ scenario: 'clocks', rows: 5 }),
    ];
    expect(asTable(reports, ['clocks', 'poison', 'unused']).split('\n')).toEqual([
      '| scenario | rounds | rows | runs | faults | lost | doubled | out of order | ran again | longest stall | broken |',
      '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
      '| `clocks` | 1 | 5 | 12 | 2 | 0 | 0 | 0 | 0 | 1.3 s | 0 |',
      '| `poison` | 2 | 20 | 24 | 4 | 1 | 0 | 0 | 0 | 1.3 s | 1 |',
      '| all | 3 | 25 | 36 | 6 | 1 | 0 | 0 | 0 | 1.3 s | 1 |',
    ]);
  });
});

describe('the file of rounds', () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'sidelane-rounds-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  it('knows the rounds of an earlier run, but not one that was cut short, of another seed or of another length', () => {
    const path = join(folder, 'rounds.jsonl');
    new RoundsFile(path).add(report());
    appendFileSync(path, JSON.stringify(report({ seed: '2' })).slice(0, 30));
    const again = new RoundsFile(path);
    const has = (change: Partial<RoundReport>): boolean => again.has(report(change));
    expect([{}, { seed: '2' }, { seed: '3' }, { length: 2 }, { scenario: 'clocks' }].map(has)).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
    again.add(report({ seed: '2' }));
    expect(new RoundsFile(path).has(report({ seed: '2' }))).toBe(true);
  });

  it('may be left out', () => {
    const none = new RoundsFile(undefined);
    none.add(report());
    expect(none.reports).toHaveLength(1);
  });
});
