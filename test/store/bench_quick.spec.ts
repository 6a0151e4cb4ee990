/** A bench runs as a process of its own and prints one JSON object: sizes too small to prove a figure, enough to rot. */
import { expect, it } from '@jest/globals';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { BenchResult } from '../../scripts/bench/measure.js';

const RUN_MS = 180_000;

it(
  'measures its sides, at their smallest',
  async () => {
    const words = ['scripts/bench/main.ts', 'long-lane', '--quick', '--json'];
    const child = spawn(process.execPath, ['--import', 'tsx', ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = { out: '', err: '' };
    child.stdout.on('data', (chunk: Buffer) => void (said.out += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => void (said.err += chunk.toString()));
    const [code] = (await once(child, 'close')) as [number];
    expect({ code, err: code === 0 ? '' : said.err }).toEqual({ code: 0, err: '' });
    const { bench, cases, ratios } = JSON.parse(said.out) as BenchResult;
    expect(bench).toBe('long-lane');
    expect(cases.length).toBeGreaterThan(3);
    for (const { value } of cases) expect(Number.isFinite(value)).toBe(true);
    for (const { must, reached } of ratios) expect(reached === null).toBe(must === '');
  },
  RUN_MS,
);
