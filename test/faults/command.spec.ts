/** The command of the bench: what it is asked for, what it tells, and what it remembers of an interrupted run. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArguments } from '../../scripts/faults/arguments.js';
import { command, type Surroundings } from '../../scripts/faults/command.js';
import { asTable, asText } from '../../scripts/faults/report.js';
import { RoundsFile } from '../../scripts/faults/rounds_file.js';
import { hashOf } from './bench/pod_build.js';
import type { RoundReport, Scenario } from './bench/scenario.types.js';

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
      asked: ['poison'],
      seed: 3,
      rounds: 20,
      length: 2,
      parallel: 2,
      into: 'a.jsonl',
      markdown: true,
      json: false,
    });
  });

  it('know what was named, and what only is one of all', () => {
    const wish = parseArguments(['all', 'clocks'], ['poison', 'clocks']);
    expect(wish).toMatchObject({ names: ['poison', 'clocks'], asked: ['clocks'] });
  });

  it.each([
    ['', 'which scenario?'],
    ['all --rounds 0', '--rounds: expected a whole number from 1'],
    ['all --parallel x', '--parallel: expected a whole number from 1'],
    ['all --into', '--into: expected the name of a file'],
    ['all --into --json', '--into: expected the name of a file'],
    ['nothing', 'there is no scenario "nothing"'],
    ['all --markdown --json', '--json and --markdown: one of them'],
    ['all --json --markdown', '--json and --markdown: one of them'],
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
      report({ longest_stall_ms: 100, drained_ms: 12_340 }),
      report({ seed: '2', lost: 1, violations: [{ invariant: 'lost', text: 'a' }] }),
      report({ scenario: 'clocks', rows: 5 }),
    ];
    expect(asTable(reports, ['clocks', 'poison', 'unused']).split('\n')).toEqual([
      '| scenario | rounds | rows | runs | faults | lost | doubled | out of order | ran again | drained | longest stall | broken |',
      '| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |',
      '| `clocks` | 1 | 5 | 12 | 2 | 0 | 0 | 0 | 0 | 0.4 s | 1.3 s | 0 |',
      '| `poison` | 2 | 20 | 24 | 4 | 1 | 0 | 0 | 0 | 12.3 s | 1.3 s | 1 |',
      '| all | 3 | 25 | 36 | 6 | 1 | 0 | 0 | 0 | 12.3 s | 1.3 s | 1 |',
    ]);
  });

  it('says nothing of a figure that none of its reports has, and the longest of those that have it', () => {
    const { drained_ms: _, ...older } = report();
    expect(asTable([older as RoundReport], [])).toContain('| 0 |  | 1.3 s | 0 |');
    expect(asTable([older as RoundReport, report()], [])).toContain('| 0 | 0.4 s | 1.3 s | 0 |');
  });

  it('has a line for what could not be tried', () => {
    const table = asTable([report()], ['poison', 'restart'], new Map([['restart', 'there is no server']]));
    expect(table).toContain('| `restart` | left out: there is no server |  |  |  |  |  |  |  |  |  |  |');
  });
});

describe('the file of rounds', () => {
  let folder: string;
  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'sidelane-rounds-'))));
  afterEach(() => rmSync(folder, { recursive: true }));

  it('knows the rounds of an earlier run, but not one that was cut short, of another seed or of another length', () => {
    const path = join(folder, 'rounds.jsonl');
    new RoundsFile(path, 'c1').add(report());
    appendFileSync(path, JSON.stringify(report({ seed: '2' })).slice(0, 30));
    const again = new RoundsFile(path, 'c1');
    const has = (change: Partial<RoundReport>): boolean => again.find(report(change)) !== undefined;
    expect([{}, { seed: '2' }, { seed: '3' }, { length: 2 }, { scenario: 'clocks' }].map(has)).toEqual([
      true,
      false,
      false,
      false,
      false,
    ]);
    again.add(report({ seed: '2' }));
    expect(new RoundsFile(path, 'c1').find(report({ seed: '2' }))).toBeDefined();
  });

  it('does not count rounds of other code, nor those that do not say of which, and keeps them', () => {
    const path = join(folder, 'rounds.jsonl');
    new RoundsFile(path, 'c1').add(report());
    const { code: _, ...unsaid } = report({ seed: '2' });
    appendFileSync(path, `${JSON.stringify(unsaid)}\n`);
    const other = new RoundsFile(path, 'c2');
    expect([other.reports, other.ofOtherCode]).toEqual([[], 2]);
    other.add(report({ code: 'c2' }));
    expect(new RoundsFile(path, 'c1').reports).toEqual([report()]);
  });

  it('may be left out', () => {
    const none = new RoundsFile(undefined, 'c1');
    none.add(report());
    expect(none.reports).toHaveLength(1);
  });
});

describe('the hash of the code under test', () => {
  const source = { path: 'src/a.ts', text: 'a' };

  it.each([
    ['a text', [{ ...source, text: 'b' }]],
    ['a name', [{ ...source, path: 'src/b.ts' }]],
    ['where a name ends', [{ path: 'src/a.tsa', text: '' }]],
    ['a file more', [source, { path: 'src/b.ts', text: '' }]],
  ])('tells %s apart', (_, changed) => {
    expect(hashOf(changed)).not.toBe(hashOf([source]));
    expect(hashOf([{ ...source }])).toBe(hashOf([source]));
  });
});

describe('npm run faults', () => {
  const scenario = (name: string, reason?: string): Scenario => ({
    name,
    about: name,
    run: () => Promise.resolve(),
    ...(reason && { unavailable: () => reason }),
  });
  const broken = [{ invariant: 'lost' as const, text: 'a' }];

  /** Its exit code, the rounds that were run, and what was said and complained about. */
  async function outcome(
    words: string,
    change: { violations?: RoundReport['violations']; fails?: boolean; code?: string } = {},
  ): Promise<{ exit: number; ran: string[]; said: string; complaints: string }> {
    const [ran, said, complaints]: string[][] = [[], [], []];
    const around: Surroundings = {
      scenarios: [scenario('poison'), scenario('restart', 'there is no server')],
      code: change.code ?? 'c1',
      prepare: () => Promise.resolve(),
      run: ({ name }, seed, length) => {
        ran!.push(`${name} ${seed}`);
        if (change.fails) return Promise.reject(new Error('no database'));
        const code = change.code ?? 'c1';
        return Promise.resolve(report({ scenario: name, seed, length, code, violations: change.violations ?? [] }));
      },
      say: (text) => void said!.push(text),
      complain: (text) => void complaints!.push(text),
      machine: () => 'a machine',
    };
    const exit = await command(words.split(' ').filter(Boolean), around);
    return { exit, ran: ran!, said: said!.join('\n'), complaints: complaints!.join('\n') };
  }

  it.each([
    ['poison', {}, 0],
    ['poison', { violations: broken }, 1],
    ['poison', { fails: true }, 1],
    ['all', {}, 0],
    ['restart', {}, 1],
    ['all restart', {}, 1],
    ['nothing', {}, 2],
    ['', {}, 2],
  ])('"%s" with %j ends with %s', async (words, change, exit) => {
    expect((await outcome(words, change)).exit).toBe(exit);
  });

  it('says what it left out, also in the table', async () => {
    const { ran, said, complaints } = await outcome('all --rounds 2 --markdown');
    expect(ran).toEqual(['poison 1', 'poison 2']);
    expect(said).toMatch(/\| `restart` \| left out: there is no server \|.*a machine$/s);
    expect(complaints).toBe('restart is left out: there is no server');
  });

  it('tells with --json nothing but one report a line, also of what broke', async () => {
    const { said, complaints } = await outcome('all --rounds 2 --json', { violations: broken });
    const told = said.split('\n').map((line) => JSON.parse(line) as RoundReport);
    expect(told).toEqual(['1', '2'].map((seed) => report({ seed, violations: broken })));
    expect(complaints).toBe('restart is left out: there is no server');
  });

  it('runs nothing when what it is to print cannot be read', async () => {
    const { exit, ran, said, complaints } = await outcome('poison --json --markdown');
    expect([exit, ran, said]).toEqual([2, [], '']);
    expect(complaints).toMatch(/^--json and --markdown: one of them\nusage: /);
  });

  it('runs what stands in its file again for other code only, and goes on saying what was broken', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'sidelane-rounds-'));
    try {
      const words = `poison --into ${join(folder, 'rounds.jsonl')}`;
      const runs = [
        await outcome(words, { violations: broken }),
        await outcome(words),
        await outcome(words, { code: 'c2' }),
      ];
      expect(runs.map(({ exit, ran }) => [exit, ran.length])).toEqual([
        [1, 1],
        [1, 0],
        [0, 1],
      ]);
      expect(runs[2]!.complaints).toMatch(/1 rounds in .* are of other code/);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
