/**
 * The pods' program as plain JavaScript, translated once and kept by the hash of its sources: a pod then starts in a
 * fraction of the time, and a source that is edited meanwhile cannot reach half of the pods.
 */
import { transformSync } from '@swc/core';
import { createHash, randomUUID } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const CHECKOUT = fileURLToPath(new URL('../../..', import.meta.url));
const CACHE = join(CHECKOUT, 'node_modules/.cache/sidelane-faults');
const FOLDERS = ['src', 'test/faults/bench'];
const KEPT = 8;
const MAIN = 'test/faults/bench/pod.main.js';

let built: string | undefined;

/** Path of the program to run. */
export function podProgram(): string {
  built ??= build();
  utimesSync(built, new Date(), new Date()); // in use: not among the oldest
  return join(built, MAIN);
}

interface Source {
  path: string;
  text: string;
}

function sourcesOf(folders: readonly string[]): Source[] {
  return folders
    .flatMap((folder) =>
      readdirSync(join(CHECKOUT, folder), { recursive: true, encoding: 'utf8' })
        .filter((name) => name.endsWith('.ts') && !name.endsWith('.spec.ts'))
        .map((name) => join(folder, name)),
    )
    .sort()
    .map((path) => ({ path, text: readFileSync(join(CHECKOUT, path), 'utf8') }));
}

/** Tells sources apart by their names and what stands in them. */
export function hashOf(sources: readonly Source[]): string {
  const hash = createHash('sha256');
  for (const { path, text } of sources) hash.update(JSON.stringify([path, text]));
  return hash.digest('hex').slice(0, 16);
}

let code: string | undefined;

/** Hash of what a round tries: the engine, the pods, and the scenarios with their judge. Taken once per process. */
export function codeUnderTest(): string {
  return (code ??= hashOf(sourcesOf(['src', 'test/faults'])));
}

function build(): string {
  const sources = sourcesOf(FOLDERS);
  const folder = join(CACHE, hashOf(sources));
  if (existsSync(folder)) return folder;
  prune();
  const draft = `${folder}.${randomUUID()}`;
  for (const { path, text } of sources) {
    const file = join(draft, path.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, translate(path, text));
  }
  writeFileSync(join(draft, 'package.json'), '{"type":"module"}');
  try {
    renameSync(draft, folder);
  } catch {
    rmSync(draft, { recursive: true, force: true }); // somebody else was first
  }
  return folder;
}

/** Programs of older sources, and drafts that were never finished. The newest stay: another run may be using them. */
function prune(): void {
  mkdirSync(CACHE, { recursive: true });
  const folders = readdirSync(CACHE).map((name) => ({ name, at: statSync(join(CACHE, name)).mtimeMs }));
  for (const { name } of folders.sort((a, b) => b.at - a.at).slice(KEPT - 1)) {
    rmSync(join(CACHE, name), { recursive: true, force: true });
  }
}

function translate(filename: string, text: string): string {
  const { code } = transformSync(text, {
    filename,
    swcrc: false,
    jsc: {
      target: 'es2022',
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
      keepClassNames: true,
    },
    module: { type: 'es6' },
    // No source maps: they double what a pod costs, and lines are easy to find in the program that is kept.
    sourceMaps: false,
  });
  return code;
}
