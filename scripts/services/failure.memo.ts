// Remembers for some minutes that a provider failed although a later one worked, so that the next start does not wait
// for the same failure. Never remembers when nothing worked: then the user changes something and tries again.
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readJson, writeJson } from './state.store.js';

const KEPT_MS = 10 * 60_000;

interface Memo {
  [provider: string]: { reason: string; at: number };
}

const fileOf = (folder: string): string => join(folder, 'failures.json');

export function recentFailure(folder: string, provider: string, now = Date.now()): string | undefined {
  const memo = readJson<Memo>(fileOf(folder))?.[provider];
  return memo !== undefined && Math.abs(now - memo.at) < KEPT_MS ? memo.reason : undefined;
}

export function rememberFailures(folder: string, failures: Map<string, string>, now = Date.now()): void {
  if (failures.size === 0) return;
  mkdirSync(folder, { recursive: true });
  const memo: Memo = readJson<Memo>(fileOf(folder)) ?? {};
  for (const [provider, reason] of failures) memo[provider] = { reason, at: now };
  writeJson(fileOf(folder), memo);
}

export const forgetFailures = (folder: string): void => rmSync(fileOf(folder), { force: true });
