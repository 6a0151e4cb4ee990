/**
 * Who may import whom, and where Mongo operators, time and chance may stand. Read from the import lines of src/, so a
 * shortcut through a boundary fails here before anybody gets used to it.
 */
import { describe, expect, it } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));

interface SourceFile {
  /** From the checkout: `src/jobs/policy/retry.ts`. */
  path: string;
  /** Without its comments. */
  code: string;
  /** Files of ours by their path from the checkout, packages by their name as written. */
  imports: string[];
}

function parse(path: string, text: string): SourceFile {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|\s)\/\/.*$/gm, '$1');
  const imports = [...code.matchAll(/\b(?:from|import)\s*\(?\s*['"]([^'"]+)['"]/g)].map(([, name]) =>
    name!.startsWith('.') ? posix.join(posix.dirname(path), name!).replace(/\.js$/, '.ts') : name!,
  );
  return { path, code, imports };
}

function readSources(): SourceFile[] {
  return readdirSync(join(CHECKOUT, 'src'), { recursive: true, encoding: 'utf8' })
    .map((name) => posix.join('src', name.replaceAll('\\', '/')))
    .filter((path) => path.endsWith('.ts'))
    .map((path) => parse(path, readFileSync(join(CHECKOUT, path), 'utf8')));
}

interface ImportRule {
  name: string;
  of: RegExp;
  never: RegExp;
}

const IMPORT_RULES: ImportRule[] = [
  { name: 'common stands on nothing else of ours', of: /^src\/common\//, never: /^src\/(?!common\/)/ },
  {
    name: 'policy is pure: no Nest, no Mongo, no store, no lanes, no targets, no admin',
    of: /^src\/(jobs\/policy\/|schedules\/(cron|schedule_rules)\.ts)/,
    never: /^(@nestjs\/|mongoose$|mongodb$|src\/(jobs\/(store|lanes|targets|admin)|kafka)\/)/,
  },
  {
    name: 'policy asks neither clock nor chance: time and numbers are its arguments',
    of: /^src\/jobs\/policy\//,
    never: /^src\/common\/(ports|utils)\//,
  },
  {
    name: 'store knows neither lanes nor targets nor admin',
    of: /^src\/jobs\/store\//,
    never: /^src\/jobs\/(lanes|targets|admin)\//,
  },
  {
    name: 'targets know neither store nor lanes nor admin',
    of: /^src\/jobs\/targets\//,
    never: /^src\/jobs\/(store|lanes|admin)\//,
  },
  { name: 'lanes do not know admin', of: /^src\/jobs\/lanes\//, never: /^src\/jobs\/admin\// },
  { name: 'admin runs without the lanes', of: /^src\/jobs\/admin\//, never: /^src\/jobs\/lanes\// },
  {
    name: 'the fast lane does not know the long lane',
    of: /\/fast_lane\.worker\.ts$/,
    never: /\/long_lane\.worker\.ts$/,
  },
  {
    name: 'the long lane does not know the fast lane',
    of: /\/long_lane\.worker\.ts$/,
    never: /\/fast_lane\.worker\.ts$/,
  },
  { name: 'jobs know neither Kafka nor schedules', of: /^src\/jobs\//, never: /^(src\/(kafka|schedules)\/|kafkajs$)/ },
  {
    name: 'schedules use what the jobs offer, not what they are made of',
    of: /^src\/schedules\//,
    never: /^src\/jobs\/(store|lanes|policy|admin)\//,
  },
  { name: 'schedules do not know Kafka', of: /^src\/schedules\//, never: /^(src\/kafka\/|kafkajs$)/ },
  {
    name: 'Kafka reaches neither into the store nor into the lanes',
    of: /^src\/kafka\//,
    never: /^src\/(jobs\/(store|lanes)|schedules)\//,
  },
  { name: 'nothing that ships knows tests or scripts', of: /^src\//, never: /^(test|scripts)\// },
  { name: 'nothing knows the sample host', of: /^src\/(?!main\.ts)/, never: /^src\/(main|app\.module)\.ts$/ },
];

interface CodeRule {
  name: string;
  allowed: RegExp;
  found: RegExp;
}

const CODE_RULES: CodeRule[] = [
  {
    name: 'Mongo operators stand only in stores, schemas, indexes and the outcome update',
    allowed: /(\.store|\.schema|\/indexes|\/outcome_update)\.ts$/,
    found:
      /(?<![.\w$])\$(set|unset|setOnInsert|in|nin|eq|ne|gte?|lte?|inc|min|max|mul|or|nor|and|not|exists|type|expr|push|pull|pullAll|addToSet|each|slice|sort|elemMatch|all|match|group|project|lookup|currentDate|cond|ifNull)\b/,
  },
  {
    name: 'the time and chance of the machine stand only in the ports',
    allowed: /^src\/common\/ports\//,
    found: /\bDate\.now\(|\bnew Date\(\s*\)|\bperformance\.now\(|\bMath\.random\(/,
  },
];

const forbiddenImports = (files: SourceFile[], { of, never }: ImportRule): string[] =>
  files
    .filter(({ path }) => of.test(path))
    .flatMap(({ path, imports }) => imports.filter((name) => never.test(name)).map((name) => `${path} -> ${name}`));

const forbiddenCode = (files: SourceFile[], { allowed, found }: CodeRule): string[] =>
  files.filter(({ path, code }) => !allowed.test(path) && found.test(code)).map(({ path }) => path);

const sources = readSources();

describe('the sources', () => {
  it('are read: every import of ours leads to a file that exists', () => {
    const paths = new Set(sources.map(({ path }) => path));
    const lost = sources.flatMap(({ path, imports }) =>
      imports.filter((name) => name.startsWith('src/') && !paths.has(name)).map((name) => `${path} -> ${name}`),
    );
    expect(lost).toEqual([]);
    expect(sources.find(({ path }) => path === 'src/common/utils/transaction.ts')?.imports).toEqual(
      expect.arrayContaining(['node:async_hooks', 'mongoose', 'src/common/errors.ts']),
    );
  });

  it.each(IMPORT_RULES)('$name', (rule) => expect(forbiddenImports(sources, rule)).toEqual([]));
  it.each(CODE_RULES)('$name', (rule) => expect(forbiddenCode(sources, rule)).toEqual([]));
});

describe('the reader', () => {
  it('sees imports of every form, and none in a comment', () => {
    const text = `
      import a from '../store/a.store.js';
      import type {
        B,
      } from "mongoose";
      export * from './c.js';
      import '@nestjs/common';
      const d = await import('../lanes/d.js');
      // import e from './e.js';
      /* import f from './f.js'; */
    `;
    expect(parse('src/jobs/policy/x.ts', text).imports).toEqual([
      'src/jobs/store/a.store.ts',
      'mongoose',
      'src/jobs/policy/c.ts',
      '@nestjs/common',
      'src/jobs/lanes/d.ts',
    ]);
  });

  it.each([
    ['src/common/x.ts', '../jobs/jobs.types.js'],
    ['src/jobs/policy/x.ts', '@nestjs/common'],
    ['src/jobs/policy/x.ts', 'mongoose'],
    ['src/jobs/policy/x.ts', '../../common/ports/clock.js'],
    ['src/jobs/store/x.store.ts', '../lanes/x.js'],
    ['src/jobs/x.ts', '../kafka/kafka.module.js'],
    ['src/kafka/x.ts', '../jobs/store/collections.js'],
    ['src/schedules/x.ts', '../jobs/store/collections.js'],
    ['src/index.ts', '../test/support/pod.js'],
  ])('catches that %s imports %s', (path, name) => {
    const files = [parse(path, `import { x } from '${name}';`)];
    expect(IMPORT_RULES.flatMap((rule) => forbiddenImports(files, rule))).not.toEqual([]);
  });

  it.each([
    `update({ $set: { a: 1 } })`,
    `filter['$in'] = ids`,
    `{ "$gt": 1 }`,
    'Date.now()',
    'new Date()',
    'performance.now()',
    'Math.random()',
  ])('catches %s', (code) => {
    const files = [parse('src/jobs/lanes/x.ts', code)];
    expect(CODE_RULES.flatMap((rule) => forbiddenCode(files, rule))).toHaveLength(1);
  });

  it.each(['new Date(ms)', '`${set}`', 'doc.$set(1)', '// uses $set', "text.replace(/a/, '$1')"])(
    'leaves %s alone',
    (code) => {
      const files = [parse('src/jobs/lanes/x.ts', code)];
      expect(CODE_RULES.flatMap((rule) => forbiddenCode(files, rule))).toEqual([]);
    },
  );
});
