/**
 * How many rows there are, for people. Every count follows an index, named by a hint and sorted as it is (left to choose,
 * a planner may read a whole backlog first), and stops at its limit: a million DEAD or paused rows cost as much as `most`
 * of them.
 *
 * First the newest rows of each status are looked at, with one command each. Where those were all, every target is
 * counted with them; only where a backlog was cut, PENDING and DEAD are counted target by target.
 */
import type { JobLane, JobStatus } from '../jobs.types.js';
import type { BoundedCount } from './admin.store.js';
import type { JobsCollections } from './collections.js';
import { namesOnRows } from './health.store.js';

type Stage = Record<string, unknown>;

export interface CountedTarget {
  readonly name: string;
  /** Unknown where this pod does not know the target. */
  readonly lane?: JobLane | undefined;
}

export interface Counted {
  readonly statuses: ReadonlyMap<JobStatus, BoundedCount>;
  /** By status, then by target; also of targets nobody asked for, as far as the newest rows or waiting ones name them. */
  readonly targets: ReadonlyMap<JobStatus, ReadonlyMap<string, BoundedCount>>;
}

interface CountRow {
  status: JobStatus;
  target: string;
  count: number;
}

const STATUSES: readonly JobStatus[] = ['PENDING', 'RUNNING', 'DEAD', 'DONE'];
/** Names that waiting rows are asked for where a backlog was cut: one seek each. */
const MOST_NAMES = 100;
/** Counts under way at once: the lanes need connections too. */
const SIDE_BY_SIDE = 4;

/** One count: a pipeline, and the index in whose order it looks at rows. */
interface Count {
  readonly pipeline: Stage[];
  readonly hint: string;
}

/** Counts per status, and per status and target. */
export async function countByTarget(
  collections: JobsCollections,
  asked: readonly CountedTarget[],
  most: number,
): Promise<Counted> {
  const newest = await runAll(
    collections,
    STATUSES.map((status) => newestByTarget(status, most)),
  );
  const statuses = new Map<JobStatus, BoundedCount>();
  for (const status of STATUSES) {
    const sum = newest.reduce((count, row) => count + (row.status === status ? row.count : 0), 0);
    statuses.set(status, bounded(sum, most));
  }
  const isCut = ({ status }: CountRow): boolean => statuses.get(status)!.at_least;
  // A target that no code knows any more: its rows may all be older than the newest ones.
  const waiting = statuses.get('PENDING')!.at_least ? await namesOnRows(collections, { most: MOST_NAMES }) : undefined;
  const targets = allTargets(asked, [
    ...newest.map((row) => row.target),
    ...(waiting?.fast ?? []),
    ...(waiting?.long ?? []),
  ]);
  const exact = await runAll(collections, [
    ...(statuses.get('PENDING')!.at_least ? targets.flatMap((target) => waitingOf(target, most)) : []),
    ...(statuses.get('DEAD')!.at_least ? targets.map((target) => deadOf(target, most)) : []),
  ]);
  const kept = newest.filter((row) => !(oneByOne(row.status) && isCut(row)));
  return { statuses, targets: byTarget([...kept, ...exact], most, (row) => !oneByOne(row.status) && isCut(row)) };
}

/** Of one target. RUNNING and DONE are only counted among the newest rows: where those were not all, none is no zero. */
export function countOf({ statuses, targets }: Counted, status: JobStatus, target: string): BoundedCount {
  const uncounted = !oneByOne(status) && (statuses.get(status)?.at_least ?? false);
  return targets.get(status)?.get(target) ?? { count: 0, at_least: uncounted };
}

/** Statuses that are counted target by target where they were cut. */
function oneByOne(status: JobStatus): boolean {
  return status === 'PENDING' || status === 'DEAD';
}

async function runAll({ jobs }: JobsCollections, counts: readonly Count[]): Promise<CountRow[]> {
  const rows: CountRow[] = [];
  for (let start = 0; start < counts.length; start += SIDE_BY_SIDE) {
    const group = counts.slice(start, start + SIDE_BY_SIDE);
    const found = await Promise.all(
      group.map(({ pipeline, hint }) => jobs.aggregate<CountRow>(pipeline, { hint }).toArray()),
    );
    rows.push(...found.flat());
  }
  return rows;
}

function newestByTarget(status: JobStatus, most: number): Count {
  const pipeline = [
    { $match: { status } },
    { $sort: { _id: -1 } },
    { $limit: most + 1 },
    { $group: { _id: '$target', count: { $sum: 1 } } },
    { $project: { _id: 0, count: 1, target: '$_id', status: { $literal: status } } },
  ];
  return { pipeline, hint: 'admin' };
}

function waitingOf({ name: target, lane }: CountedTarget, most: number): Count[] {
  const fast = counted(
    { status: 'PENDING', lane: 'fast', target: { $eq: target } },
    { partition: 1, order_key: 1, version: 1, _id: 1 },
    { status: 'PENDING', target, most },
  );
  const long = counted(
    { status: 'PENDING', lane: 'long', target: { $eq: target } },
    { priority: -1, next_run_at: 1, _id: 1 },
    { status: 'PENDING', target, most },
  );
  return [
    ...(lane === 'long' ? [] : [{ pipeline: fast, hint: 'in_order' }]),
    ...(lane === 'fast' ? [] : [{ pipeline: long, hint: 'due_long' }]),
  ];
}

function deadOf({ name: target }: CountedTarget, most: number): Count {
  const match = { status: 'DEAD', target: { $eq: target } };
  return { pipeline: counted(match, { _id: -1 }, { status: 'DEAD', target, most }), hint: 'dead' };
}

function counted(
  match: Stage,
  sort: Stage,
  { status, target, most }: { status: JobStatus; target: string; most: number },
): Stage[] {
  return [
    { $match: match },
    { $sort: sort },
    { $limit: most + 1 },
    { $group: { _id: null, count: { $sum: 1 } } },
    { $project: { _id: 0, count: 1, status: { $literal: status }, target: { $literal: target } } },
  ];
}

function allTargets(asked: readonly CountedTarget[], found: readonly string[]): CountedTarget[] {
  const known = new Set(asked.map((target) => target.name));
  const others = new Set(found.filter((name) => !known.has(name)));
  return [...asked, ...[...others].map((name) => ({ name }))];
}

function byTarget(
  rows: readonly CountRow[],
  most: number,
  isCut: (row: CountRow) => boolean,
): Map<JobStatus, Map<string, BoundedCount>> {
  const counts = new Map(STATUSES.map((status) => [status, new Map<string, BoundedCount>()]));
  for (const row of rows) {
    const ofStatus = counts.get(row.status)!;
    const before = ofStatus.get(row.target); // a target with rows in both lanes has two
    const count = bounded((before?.count ?? 0) + row.count, most);
    ofStatus.set(row.target, { ...count, at_least: count.at_least || (before?.at_least ?? false) || isCut(row) });
  }
  return counts;
}

function bounded(count: number, most: number): BoundedCount {
  return { count: Math.min(count, most), at_least: count > most };
}
