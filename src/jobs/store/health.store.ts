/**
 * What health checks and metrics ask the database. Reads only. Every read is one seek per name or partition asked for, in
 * index order, and stops at its limit: none of them grows with the backlog, the paused rows or DEAD (invariant 10).
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { JobLane, JobStatus } from '../jobs.types.js';
import type { JobsCollections } from './collections.js';

type Stage = Record<string, unknown>;

/** Connections that one metrics read may keep busy. */
const SEEKS_AT_ONCE = 8;
/** Expired leases looked at: the oldest ones stand first, and stay there. */
const EXPIRED_LIMIT = 100;

export interface NamesOnRows {
  /** Targets of PENDING rows, per lane. */
  readonly fast: readonly string[];
  readonly long: readonly string[];
  /** Targets of RUNNING rows whose lease ran out long ago: a sweep that knew them would have taken them. */
  readonly abandoned: readonly string[];
  /** False: there are more names than were asked for. */
  readonly complete: boolean;
}

/**
 * Which targets do rows name? PENDING ones by jumping from one name to the next: one command for each (both lanes at
 * once) and one more, however many rows there are. An idle engine: one command.
 */
export async function namesOnRows(
  collections: JobsCollections,
  { most, abandonedBefore }: { most: number; abandonedBefore?: Date },
): Promise<NamesOnRows> {
  const found = { fast: [] as string[], long: [] as string[] };
  const open = new Set<JobLane>(['fast', 'long']);
  const abandoned = new Set<string>();
  for (let step = 0; step <= most && open.size > 0; step++) {
    const branches = [...open].map((lane) => nextTarget(lane, found[lane].at(-1) ?? ''));
    if (step === 0 && abandonedBefore) branches.push(expired(abandonedBefore));
    const rows = await runBranches<{ where: JobLane | 'abandoned'; target: string }>(collections, branches);
    for (const row of rows) if (row.where === 'abandoned') abandoned.add(row.target);
    for (const lane of open) {
      const next = rows.find((row) => row.where === lane);
      if (next) found[lane].push(next.target);
      else open.delete(lane);
    }
  }
  return { ...found, abandoned: [...abandoned], complete: open.size === 0 };
}

function expired(before: Date): Stage[] {
  return [
    { $match: { status: 'RUNNING', lease_until: { $lte: before } } },
    { $sort: { lease_until: 1 } },
    { $limit: EXPIRED_LIMIT },
    { $project: { _id: 0, target: 1, where: { $literal: 'abandoned' } } },
  ];
}

function nextTarget(lane: JobLane, after: string): Stage[] {
  // Sorted exactly as the lane's index is, so that the first key behind `after` is the answer.
  const sort =
    lane === 'fast'
      ? { target: 1, partition: 1, order_key: 1, version: 1, _id: 1 }
      : { target: 1, priority: -1, next_run_at: 1, _id: 1, code: 1 };
  return [
    // The next name there can be, as none holds a NUL: from "more than this one" a scan may step over all rows of this one.
    { $match: { status: 'PENDING', lane, target: { $gte: `${after}\u0001` } } },
    { $sort: sort },
    { $limit: 1 },
    { $project: { _id: 0, target: 1, where: { $literal: lane } } },
  ];
}

/** Partitions that nobody owns right now, or whose owner's lease ran out. One row per partition is looked at. */
export async function unownedPartitions({ partitions }: JobsCollections, now: Date): Promise<number[]> {
  const rows = await partitions
    .find({ $or: [{ owner: null }, { lease_until: { $lte: now } }] }, { projection: { _id: 0, partition: 1 } })
    .toArray();
  return rows.map(({ partition }) => partition).sort((a, b) => a - b);
}

/** Which of these partitions have due rows of these targets? At most `limit` rows are read. */
export async function partitionsWithDueRows(
  { jobs }: JobsCollections,
  {
    targets,
    partitions,
    now,
    limit,
  }: { targets: readonly string[]; partitions: readonly number[]; now: Date; limit: number },
): Promise<number[]> {
  const rows = await jobs
    .find(
      {
        status: 'PENDING',
        lane: 'fast',
        target: { $in: [...targets] },
        partition: { $in: [...partitions] },
        next_run_at: { $lte: now },
      },
      {
        projection: { _id: 0, partition: 1 },
        // In index order: without it a server may look at the whole backlog first.
        sort: { target: 1, partition: 1, next_run_at: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'due_fast',
      },
    )
    .toArray();
  return [...new Set(rows.map(({ partition }) => partition))].sort((a, b) => a - b);
}

/** What live pods say they know. `undefined`: one of them does not say, so nothing is known to be unknown. */
export async function knownTargets({ workers }: JobsCollections, since: Date): Promise<Set<string> | undefined> {
  const rows = await workers.find({ heartbeat_at: { $gt: since } }, { projection: { _id: 0, targets: 1 } }).toArray();
  if (rows.some(({ targets }) => targets === undefined)) return undefined;
  return new Set(rows.flatMap(({ targets }) => targets ?? []));
}

/** Rows per status, each counted up to `most`. */
export async function countStates(
  collections: JobsCollections,
  statuses: readonly JobStatus[],
  most: number,
): Promise<Map<JobStatus, number>> {
  const branches = statuses.map((status) => [
    { $match: { status } },
    { $sort: { _id: -1 } },
    { $limit: most },
    { $group: { _id: null, count: { $sum: 1 } } },
    { $project: { _id: 0, count: 1, status: { $literal: status } } },
  ]);
  const rows = await runBranches<{ status: JobStatus; count: number }>(collections, branches);
  return new Map(statuses.map((status) => [status, rows.find((row) => row.status === status)?.count ?? 0]));
}

/** Due time of the target's oldest due row in these partitions: one seek for each, a few at a time. */
export async function oldestDueFast(
  { jobs }: JobsCollections,
  { target, partitions, now }: { target: string; partitions: readonly number[]; now: Date },
): Promise<Date | undefined> {
  let oldest: Date | undefined;
  for (let start = 0; start < partitions.length; start += SEEKS_AT_ONCE) {
    const seeks = partitions.slice(start, start + SEEKS_AT_ONCE).map((partition) =>
      jobs
        .find(
          { status: 'PENDING', lane: 'fast', target, partition, next_run_at: { $lte: now } },
          {
            projection: { _id: 0, next_run_at: 1 },
            sort: { next_run_at: 1, _id: 1 },
            ...oneBatch(1),
            hint: 'due_fast',
          },
        )
        .toArray(),
    );
    oldest = earliest([
      ...(await Promise.all(seeks)).flat().map((row) => row.next_run_at),
      ...(oldest ? [oldest] : []),
    ]);
  }
  return oldest;
}

/** The same in the long lane: one seek per priority. */
export async function oldestDueLong(
  collections: JobsCollections,
  target: string,
  now: Date,
): Promise<Date | undefined> {
  const due = { status: 'PENDING', lane: 'long', target: { $eq: target }, next_run_at: { $lte: now } };
  const branches = [1, 2, 3].map((priority) => [
    { $match: { ...due, priority } },
    { $sort: { next_run_at: 1, _id: 1 } },
    { $limit: 1 },
    { $project: { _id: 0, next_run_at: 1 } },
  ]);
  return earliest((await runBranches<{ next_run_at: Date }>(collections, branches)).map((row) => row.next_run_at));
}

function earliest(dates: readonly Date[]): Date | undefined {
  return dates.reduce<Date | undefined>((first, date) => (first && first <= date ? first : date), undefined);
}

async function runBranches<T extends object>({ jobs }: JobsCollections, branches: readonly Stage[][]): Promise<T[]> {
  const [first, ...others] = branches;
  const unions = others.map((pipeline) => ({ $unionWith: { coll: jobs.collectionName, pipeline } }));
  return jobs.aggregate<T>([...first!, ...unions]).toArray();
}
