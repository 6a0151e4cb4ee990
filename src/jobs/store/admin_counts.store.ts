/**
 * How many rows there are, for people. Every count follows an index and stops at its limit, so a million DEAD or paused
 * rows cost as much as `most` of them; all counts of a page are one command.
 */
import type { JobLane, JobStatus } from '../jobs.types.js';
import type { BoundedCount } from './admin.store.js';
import type { JobsCollections } from './collections.js';

type Stage = Record<string, unknown>;

export interface CountedTarget {
  readonly name: string;
  /** Unknown where this pod does not know the target. */
  readonly lane?: JobLane | undefined;
}

export interface Counted {
  readonly statuses: ReadonlyMap<JobStatus, BoundedCount>;
  /** By status, then by target. */
  readonly targets: ReadonlyMap<JobStatus, ReadonlyMap<string, BoundedCount>>;
}

interface CountRow {
  status: JobStatus;
  /** Missing: all targets of the status. */
  target?: string;
  count: number;
}

const STATUSES: readonly JobStatus[] = ['PENDING', 'RUNNING', 'DEAD', 'DONE'];
/** One command must not grow with the number of targets without end. */
const BRANCHES_PER_COMMAND = 60;

/** Names of targets that this many of the newest waiting and DEAD rows have. */
export async function sampleTargets({ jobs }: JobsCollections, sample: number): Promise<string[]> {
  const newest = (status: JobStatus): Stage[] => [
    { $match: { status } },
    { $sort: { _id: -1 } },
    { $limit: sample },
    { $group: { _id: '$target' } },
  ];
  const rows = await jobs
    .aggregate<{ _id: string }>([...newest('PENDING'), { $unionWith: { coll: 'jobs', pipeline: newest('DEAD') } }])
    .toArray();
  return [...new Set(rows.map((row) => row._id))].sort();
}

/** Counts per status, and per status and target. RUNNING and DONE rows are counted among the newest `most` of all targets. */
export async function countByTarget(
  collections: JobsCollections,
  targets: readonly CountedTarget[],
  most: number,
): Promise<Counted> {
  const branches = [
    ...STATUSES.map((status) => ofStatus(status, most)),
    ...(['RUNNING', 'DONE'] as const).map((status) => newestByTarget(status, most)),
    ...targets.flatMap((target) => [...waitingOf(target, most), deadOf(target, most)]),
  ];
  const rows: CountRow[] = [];
  for (let start = 0; start < branches.length; start += BRANCHES_PER_COMMAND) {
    rows.push(...(await runBranches(collections, branches.slice(start, start + BRANCHES_PER_COMMAND))));
  }
  return collect(rows, most);
}

async function runBranches({ jobs }: JobsCollections, branches: readonly Stage[][]): Promise<CountRow[]> {
  const [first, ...others] = branches;
  const unions = others.map((pipeline) => ({ $unionWith: { coll: 'jobs', pipeline } }));
  return jobs.aggregate<CountRow>([...first!, ...unions]).toArray();
}

function ofStatus(status: JobStatus, most: number): Stage[] {
  return counted({ status }, { _id: -1 }, most, { status });
}

/** Sorted as the index is: a planner that sorts anew would read everything first. */
function waitingOf({ name: target, lane }: CountedTarget, most: number): Stage[][] {
  const fast = counted(
    { status: 'PENDING', lane: 'fast', target: { $eq: target } },
    { partition: 1, order_key: 1, version: 1, _id: 1 },
    most,
    { status: 'PENDING', target },
  );
  const long = counted(
    { status: 'PENDING', lane: 'long', target: { $eq: target } },
    { priority: -1, next_run_at: 1, _id: 1 },
    most,
    { status: 'PENDING', target },
  );
  if (lane === undefined) return [fast, long];
  return [lane === 'fast' ? fast : long];
}

function deadOf({ name: target }: CountedTarget, most: number): Stage[] {
  return counted({ status: 'DEAD', target: { $eq: target } }, { _id: -1 }, most, { status: 'DEAD', target });
}

function counted(match: Stage, sort: Stage, most: number, label: { status: JobStatus; target?: string }): Stage[] {
  const literal = Object.fromEntries(Object.entries(label).map(([name, value]) => [name, { $literal: value }]));
  return [
    { $match: match },
    { $sort: sort },
    { $limit: most + 1 },
    { $group: { _id: null, count: { $sum: 1 } } },
    { $project: { _id: 0, count: 1, ...literal } },
  ];
}

function newestByTarget(status: JobStatus, most: number): Stage[] {
  return [
    { $match: { status } },
    { $sort: { _id: -1 } },
    { $limit: most },
    { $group: { _id: '$target', count: { $sum: 1 } } },
    { $project: { _id: 0, count: 1, target: '$_id', status: { $literal: status } } },
  ];
}

function collect(rows: readonly CountRow[], most: number): Counted {
  const bounded = (count: number): BoundedCount => ({ count: Math.min(count, most), at_least: count > most });
  const statuses = new Map(STATUSES.map((status) => [status, bounded(0)]));
  const sums = new Map<JobStatus, Map<string, number>>(STATUSES.map((status) => [status, new Map<string, number>()]));
  for (const { status, target, count } of rows) {
    if (target === undefined) statuses.set(status, bounded(count));
    else sums.get(status)!.set(target, (sums.get(status)!.get(target) ?? 0) + count);
  }
  // Of these only the newest rows were looked at: where there are more, each target may have more.
  const cut = (status: JobStatus): boolean =>
    (status === 'RUNNING' || status === 'DONE') && statuses.get(status)!.at_least;
  const targets = new Map(
    [...sums].map(([status, byTarget]) => [
      status,
      new Map(
        [...byTarget].map(([target, count]) => [target, { ...bounded(count), ...(cut(status) && { at_least: true }) }]),
      ),
    ]),
  );
  return { statuses, targets };
}
