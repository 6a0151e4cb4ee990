// One folder per user, outside of any checkout, says which services run: two clones share them. Records are replaced
// whole; a record that cannot be read counts as none, so that a broken file never stops a start.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import type { ServiceName, ServiceRecord } from './services.types.js';

export function stateFolder(env: NodeJS.ProcessEnv = process.env): string {
  return join(env.XDG_STATE_HOME ?? join(homedir(), '.local', 'state'), 'sidelane', 'services');
}

export function cacheFolder(env: NodeJS.ProcessEnv = process.env): string {
  return join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'sidelane');
}

const fileOf = (folder: string, name: string): string => join(folder, `${name}.json`);

export function readJson<T>(file: string): T | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as T;
  } catch {
    return undefined;
  }
}

export function writeJson(file: string, value: unknown): void {
  const draft = `${file}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(value, undefined, 2));
  renameSync(draft, file);
}

export function readRecord(folder: string, name: ServiceName): ServiceRecord | undefined {
  const record = readJson<ServiceRecord>(fileOf(folder, name));
  return typeof record?.address === 'string' && Array.isArray(record.processes) ? record : undefined;
}

export function writeRecord(folder: string, name: ServiceName, record: ServiceRecord): void {
  mkdirSync(folder, { recursive: true });
  writeJson(fileOf(folder, name), record);
}

export const removeRecord = (folder: string, name: ServiceName): void => rmSync(fileOf(folder, name), { force: true });
