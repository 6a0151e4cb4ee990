/** Brings together what the judge is to see: ledgers, collections, what the sampler saw, and how every pod ended. */
import type { Evidence, PodStory, ProducedRow, SlotRow } from './invariants.js';
import { readLedgers, type LedgerLine } from './ledger.js';
import type { PodEnd } from './pod_process.js';
import type { Sampler } from './sampler.js';
import type { Scenario } from './scenario.types.js';
import type { World } from './world.js';

/** After every pod has ended. */
export async function gather(world: World, sampler: Sampler, { calm }: Pick<Scenario, 'calm'>): Promise<Evidence> {
  const { connection } = world;
  const lines = readLedgers(world.folder);
  const rows = await world.jobs.find({ target: { $not: /^schedule:/ } } as object).toArray();
  const left = rows.map((row) => ({ ...row, id: row._id.toHexString(), n: (row.payload as { n: string }).n }));
  const audits = await connection.collection('job_audit').find().toArray();
  const mourned = await connection.collection('mourned').find().toArray();
  const names = new Map(lines.flatMap((line) => (line.what === 'start' ? [[line.id, line.n] as const] : [])));
  for (const { id, n } of [...left, ...world.touched]) names.set(id, n);
  const busy = { $or: [{ owner: { $ne: null } }, { 'inflight.0': { $exists: true } }] };
  return {
    ...withoutCollections(world, sampler, { calm }),
    lines,
    produced: (await connection.collection('produced').find().toArray()) as unknown as ProducedRow[],
    left,
    mourned: mourned.map((row) => String(row['job'])),
    audit: audits
      .filter((row) => String(row['action']).startsWith('job.'))
      .map((row) => ({ action: String(row['action']), id: String(row['subject']) }))
      .map((action) => ({ ...action, n: names.get(action.id) ?? '' })),
    unreleased: await connection.collection('job_partitions').countDocuments(busy),
    slot_rows: await slotRows(world),
  };
}

/** What there is to be kept when the collections cannot be read. Nothing can be judged by it. */
export function withoutCollections(world: World, sampler: Sampler, { calm = false }: Pick<Scenario, 'calm'>): Evidence {
  const lines = readLedgers(world.folder);
  return {
    lines,
    produced: [],
    left: [],
    mourned: [],
    audit: [],
    unreleased: 0,
    pods: world.pods.map((pod) => storyOf(pod, lines)),
    expectDead: world.expectDead,
    calm,
    removed: world.removed,
    terms: sampler.terms,
    schedules: sampler.schedules,
    slot_rows: [],
  };
}

async function slotRows(world: World): Promise<SlotRow[]> {
  const rows = await world.jobs.find({ target: /^schedule:/ } as object).toArray();
  return rows.map(({ _id, code, payload, status }) => ({
    id: _id.toHexString(),
    code,
    slot: (payload as { slot: string }).slot,
    status,
  }));
}

export interface EndedPod {
  readonly name: string;
  readonly end: PodEnd | undefined;
  readonly doomed: boolean;
  readonly stopping: boolean;
  readonly isUp: boolean;
  readonly crash?: object | undefined;
  readonly output: string;
}

/**
 * Who was killed, or killed itself where it was to, ended by SIGKILL and not otherwise before; who was told to stop ended
 * in order. A pod that was to die at a point of its own has no other end.
 */
export function storyOf(pod: EndedPod, lines: readonly LedgerLine[]): PodStory {
  const { end, name } = pod;
  if (!end) return { name, endedAt: Infinity };
  const poisoned = lines.some((line) => line.what === 'poisoned' && line.pod === name);
  const killed = (pod.doomed || poisoned) && end.signal === 'SIGKILL';
  // A pod that is told to stop before it is up has nothing to end in order.
  const stopped = pod.crash === undefined && pod.stopping && (end.code === 0 || !pod.isUp);
  const diedByItself = `code ${end.code}, signal ${end.signal}\n${pod.output.slice(-2_000)}`;
  return { name, endedAt: end.at, ...(!killed && !stopped && { diedByItself }) };
}
