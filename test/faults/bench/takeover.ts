/** Whether a fault was one: what a pod owned when it began must have gone to a new term when it is over. */
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from './ledger.js';
import type { PodProcess } from './pod_process.js';
import { LEASE_MS } from './pod_settings.js';
import type { World } from './world.js';

const PATIENCE_MS = 20_000;
/** Whoever took over needs a few heartbeats, and on a busy machine more. */
const TAKEOVER_MS = 2 * LEASE_MS;

/** Names under which a pod owns partitions and claims rows. */
export const namesOf = ({ pid }: PodProcess): RegExp => new RegExp(`:${pid}:`);

export async function until(holds: () => boolean | Promise<boolean>, ms = PATIENCE_MS): Promise<boolean> {
  const end = machineMs() + ms;
  while (machineMs() < end) {
    if (await holds()) return true;
    await sleep(50);
  }
  return false;
}

/** Tokens of the terms it holds, once others have given it a share. */
export async function termsOf(world: World, pod: PodProcess): Promise<string[]> {
  const partitions = world.connection.collection('job_partitions');
  let terms: string[] = [];
  await until(async () => {
    const owned = await partitions.find({ owner: namesOf(pod) }).toArray();
    terms = owned.map((row) => String(row['lease_token']));
    return terms.length > 0;
  });
  return terms;
}

/** A fault that outlived the lease ended these terms, for good: nobody goes on under one of them. */
export async function expectTakeover(world: World, pod: PodProcess, terms: readonly string[]): Promise<void> {
  const partitions = world.connection.collection('job_partitions');
  const over = async (): Promise<boolean> =>
    (await partitions.countDocuments({ lease_token: { $in: [...terms] } })) === 0;
  if (terms.length === 0) world.violated('scenario', `${pod.name} owned nothing that could be taken over`);
  else if (!(await until(over, TAKEOVER_MS))) world.violated('scenario', `${pod.name} kept its terms past its lease`);
}
