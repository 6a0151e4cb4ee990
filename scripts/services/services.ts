// The development services as tests, the demo and the command line use them: `up` hands out addresses and returns at
// once when everything runs. Two starts at the same time become one.
import { forgetFailures } from './failure.memo.js';
import { processesOf, running, ServiceMissingError, start, stop } from './service.start.js';
import { CATALOG, SERVICE_NAMES } from './services.catalog.js';
import type { Log, Service, ServiceAddresses, ServiceName } from './services.types.js';
import { withLock } from './state.lock.js';
import { readRecord, stateFolder } from './state.store.js';

export { ServiceMissingError };
export type { Log, ServiceAddresses, ServiceName };

interface Surroundings {
  folder: string;
  env: NodeJS.ProcessEnv;
  catalog: Record<ServiceName, Service>;
}

const here = (): Surroundings => ({ folder: stateFolder(), env: process.env, catalog: CATALOG });

const fromEnvironment = (service: Service, env: NodeJS.ProcessEnv): string | undefined =>
  env[service.variable] || undefined;

export async function up(names: ServiceName[], log: Log, where: Surroundings = here()): Promise<ServiceAddresses> {
  const addresses: ServiceAddresses = {};
  const wanted = names.map((name) => where.catalog[name]);
  const missing = await collect(wanted, addresses, where);
  if (missing.length === 0) return addresses;
  await withLock(where.folder, log, async () => {
    // Another start may have brought them up while we waited for the lock.
    const still = await collect(missing, addresses, where);
    const place = { folder: where.folder, log };
    const results = await Promise.allSettled(
      still.map(async (service) => (addresses[service.key] = (await start(service, place)).address)),
    );
    failTogether(results);
  });
  return addresses;
}

/** Fills in the addresses that are known without starting anything; returns the services that are left. */
async function collect(services: Service[], addresses: ServiceAddresses, where: Surroundings): Promise<Service[]> {
  const left: Service[] = [];
  for (const service of services) {
    const address = fromEnvironment(service, where.env) ?? (await running(service, where.folder))?.address;
    if (address === undefined) left.push(service);
    else addresses[service.key] = address;
  }
  return left;
}

function failTogether(results: PromiseSettledResult<unknown>[]): void {
  const reasons = results.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []));
  const first = reasons[0];
  if (first === undefined) return;
  if (!reasons.every((reason) => reason instanceof ServiceMissingError)) throw first;
  throw new ServiceMissingError(reasons.map((reason) => reason.message).join('\n'));
}

/** Ends what we started and forgets remembered failures, so that the next start tries everything again. */
export async function down(names: ServiceName[], log: Log, where: Surroundings = here()): Promise<void> {
  await withLock(where.folder, log, async () => {
    for (const name of names) {
      const { title } = where.catalog[name];
      log(`${title}: ${(await stop(where.catalog[name], where.folder)) ? 'ended' : 'was not running'}`);
    }
    forgetFailures(where.folder);
  });
}

export async function status(names: ServiceName[], where: Surroundings = here()): Promise<string[]> {
  return Promise.all(names.map((name) => statusOf(where.catalog[name], where)));
}

async function statusOf(service: Service, where: Surroundings): Promise<string> {
  const given = fromEnvironment(service, where.env);
  if (given !== undefined) return `${service.title}: ${service.variable} says ${given}`;
  const record = await running(service, where.folder);
  if (record !== undefined) {
    const pids = processesOf(record)
      .map(({ pid }) => pid)
      .join(', ');
    return `${service.title}: ${record.provider} at ${record.address} (pid ${pids})`;
  }
  const stale = readRecord(where.folder, service.name) !== undefined;
  return `${service.title}: ${stale ? 'ended, or of older source: the next start replaces it' : 'not started'}`;
}

/** Variable names and values, as a process that uses the services expects them. */
export function asEnvironment(addresses: ServiceAddresses): Record<string, string> {
  const entries = SERVICE_NAMES.map((name) => [CATALOG[name].variable, addresses[CATALOG[name].key]] as const);
  return Object.fromEntries(entries.filter((entry): entry is [string, string] => entry[1] !== undefined));
}
