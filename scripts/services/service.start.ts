// Brings up one service: its variable when set, else what runs already, else the first provider that works. It adopts
// nothing but processes of our own records, and says in one line what is missing when no provider works.
import { rememberFailures, recentFailure } from './failure.memo.js';
import { answers, portOf } from './loopback.port.js';
import { end, isAlive, recordOf, signal } from './process.birth.js';
import type { ProcessRecord, Provider, Service, ServiceRecord, Workplace } from './services.types.js';
import { readRecord, removeRecord, writeRecord } from './state.store.js';

export class ServiceMissingError extends Error {
  override name = 'ServiceMissingError';
}

/** The record when all its processes live, are of the current source and answer. */
export async function running(service: Service, folder: string): Promise<ServiceRecord | undefined> {
  const record = readRecord(folder, service.name);
  if (record === undefined || !processesOf(record).every(isAlive)) return undefined;
  const provider = service.providers.find(({ name }) => name === record.provider);
  if (provider === undefined || provider.stamp?.() !== record.stamp) return undefined;
  // A demo that was killed may have left it frozen.
  for (const process of processesOf(record)) signal(process, 'SIGCONT');
  return (await answers(portOf(record.address))) ? record : undefined;
}

export async function start(service: Service, place: Workplace): Promise<ServiceRecord> {
  await endAll(readRecord(place.folder, service.name)?.processes ?? []);
  removeRecord(place.folder, service.name);
  const failures = new Map<string, string>();
  const fresh = new Map<string, string>();
  for (const provider of service.providers) {
    const remembered = recentFailure(place.folder, provider.name);
    const outcome = remembered ?? (await attempt(service, provider, place));
    if (typeof outcome !== 'string') {
      rememberFailures(place.folder, fresh);
      return outcome;
    }
    failures.set(provider.name, outcome);
    if (remembered === undefined) fresh.set(provider.name, outcome);
  }
  const reasons = [...failures].map(([name, reason]) => `${name}: ${reason}`).join('; ');
  throw new ServiceMissingError(`${service.title} is missing: set ${service.variable} to use your own (${reasons})`);
}

/** The new record, or why it did not work. */
async function attempt(service: Service, provider: Provider, place: Workplace): Promise<ServiceRecord | string> {
  try {
    const unavailable = await provider.unavailable(place);
    if (unavailable !== undefined) return unavailable;
    const began = performance.now();
    const { address, pids, keptPids = [] } = await provider.start(place);
    const [processes, kept] = [pids.map(recordOf), keptPids.map(recordOf)];
    const record: ServiceRecord = { provider: provider.name, address, processes, kept };
    const stamp = provider.stamp?.();
    if (stamp !== undefined) record.stamp = stamp;
    writeRecord(place.folder, service.name, record);
    place.log(`${service.title}: ${provider.name} at ${address}, ${seconds(began)} s`);
    return record;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    place.log(`${service.title}: ${provider.name} did not start: ${reason}`);
    return reason;
  }
}

const seconds = (began: number): string => ((performance.now() - began) / 1000).toFixed(1);

/** Ends the recorded processes; tells whether there was one. */
export async function stop(service: Service, folder: string): Promise<boolean> {
  const record = readRecord(folder, service.name);
  if (record === undefined) return false;
  const lived = processesOf(record).some(isAlive);
  await endAll(processesOf(record));
  removeRecord(folder, service.name);
  return lived;
}

export const processesOf = ({ processes, kept = [] }: ServiceRecord): ProcessRecord[] => [...processes, ...kept];

/** One after the other: what depends on another process stands before it. */
async function endAll(processes: ProcessRecord[]): Promise<void> {
  for (const process of processes) await end(process, 'SIGINT');
}
