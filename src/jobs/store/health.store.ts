/**
 * What health checks and metrics ask the database. Reads only. Every read is one seek per name or partition asked for, in
 * index order, and stops at its limit: none of them grows with the backlog, the paused rows or DEAD (invariant 10).
 */
import type { JobLane, JobStatus } from '../jobs.types.js';
import type { JobsCollections } from './collections.js';

type Stage = Record<string, unknown>;

/** One command must not grow with the number of partitions without end. */
const BRANCHES_PER_COMMAND = 60;

export interface WaitingTargets {
  readonly fast: readonly string[];
  readonly long: readonly string[];
  /** False: there are more names than were asked for. */
  readonly complete: boolean;
}

/**
 * Names of the targets that PENDING rows have, by jumping from one name to the next: one command for each of them (both
 * lanes at once) and one more, however many rows there are. An idle engine: one command.
 */
export async function waitingTargets(collections: JobsCollections, most: number): Promise<WaitingTargets> {
  const found = { fast: [] as string[], long: [] as string[] };
  const open = new Set<JobLane>(['fast', 'long']);
  for (let step = 0; step <= most && open.size > 0; step++) {
    const branches = [...open].map((lane) => nextTarget(lane, found[lane].at(-1) ?? ''));
    const rows = await runBranches<{ lane: JobLane; target: string }>(collections, branches);
    for (const lane of open) {
      const next = rows.find((row) => row.lane === lane);
      if (next) found[lane].push(next.target);
      else open.delete(lane);
    }
  }
  return { ...found, complete: open.size === 0 };
}

function nextTarget(lane: JobLane, after: string): Stage[] {
  // Sorted exactly as the lane's index is, so that the first key behind `after` is the answer.
  const sort =
    lane === 'fast'
      ? { target: 1, partition: 1, order_key: 1, version: 1, _id: 1 }
      : { target: 1, priority: -1, next_run_at: 1, _id: 1, code: 1 };
  return [
    { $match: { status: 'PENDING', lane, target: { $gt: after } } },
    { $sort: sort },
    { $limit: 1 },
    { $project: { _id: 0, target: 1, lane: { $literal: lane } } },
  ];
}

/** Targets of RUNNING rows whose lease ran out before `before`: every sweep that knows them would have taken them. */
export async function abandonedTargets({ jobs }: JobsCollections, before: Date, limit: number): Promise<string[]> {
  const rows = await jobs
    .find(
      { status: 'RUNNING', lease_until: { $lte: before } },
      { projection: { _id: 0, target: 1 }, sort: { lease_until: 1 }, limit, singleBatch: true, hint: 'leases' },
    )
    .toArray();
  return [...new Set(rows.map(({ target }) => target))];
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
      { projection: { _id: 0, partition: 1 }, limit, singleBatch: true, hint: 'due_fast' },
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

/** Due time of the target's oldest due row: one seek per partition (fast lane) or priority (long lane). */
export async function oldestDue(
  collections: JobsCollections,
  { lane, target, partitions, now }: { lane: JobLane; target: string; partitions: number; now: Date },
): Promise<Date | undefined> {
  const due = { status: 'PENDING', lane, target: { $eq: target }, next_run_at: { $lte: now } };
  const branches =
    lane === 'fast'
      ? Array.from({ length: partitions }, (_, partition) => firstDue({ ...due, partition }))
      : [1, 2, 3].map((priority) => firstDue({ ...due, priority }));
  let oldest: Date | undefined;
  for (let start = 0; start < branches.length; start += BRANCHES_PER_COMMAND) {
    const slice = branches.slice(start, start + BRANCHES_PER_COMMAND);
    for (const { next_run_at } of await runBranches<{ next_run_at: Date }>(collections, slice)) {
      if (!oldest || next_run_at < oldest) oldest = next_run_at;
    }
  }
  return oldest;
}

function firstDue(match: Stage): Stage[] {
  return [
    { $match: match },
    { $sort: { next_run_at: 1, _id: 1 } },
    { $limit: 1 },
    { $project: { _id: 0, next_run_at: 1 } },
  ];
}

async function runBranches<T extends object>({ jobs }: JobsCollections, branches: readonly Stage[][]): Promise<T[]> {
  const [first, ...others] = branches;
  const unions = others.map((pipeline) => ({ $unionWith: { coll: jobs.collectionName, pipeline } }));
  return jobs.aggregate<T>([...first!, ...unions]).toArray();
}
