import { describe, expect, it } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import { CRASH_POINTS } from '../../src/common/ports/crash_points.js';

const sources = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.ts') && !name.endsWith('crash_points.ts'))
  .map((name) => readFileSync(`src/${name}`, 'utf8'));

describe('crash points', () => {
  it.each(CRASH_POINTS)('%s stands somewhere in the engine', (name) => {
    expect(sources.filter((text) => text.includes(`crashPoint('${name}')`))).not.toEqual([]);
  });
});
