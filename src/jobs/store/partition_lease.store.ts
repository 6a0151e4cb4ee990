/**
 * Who owns which partition. The database decides who holds a lease and until when; a pod's monotonic clock only
 * decides when to stop trusting the last answer, counted from BEFORE the call (lanes/partition_lease.service.ts).
 *
 * Fences: every write names the owner and the token of this term of ownership, and a lease that has not run out. A
 * write that matches nothing means "lost", a normal result. `now` is the database's time as the pod measured it.
 */
import type { mongo } from 'mongoose';
import { crashPoint } from '../../common/ports/crash_points.js';
import type { JobLane } from '../jobs.types.js';
import type { JobsCollections } from './collections.js';
import type { InflightMark, PartitionDoc, WorkerDoc } from './jobs.schema.js';

export interface Term {
  readonly partition: number;
  readonly owner: string;
  readonly lease_token: string;
}

/** A pod's partitions, as far as it knows. Named, so that a heartbeat looks at these and not at every partition. */
export interface Mine {
  readonly owner: string;
  readonly partitions: readonly number[];
  readonly now: Date;
}

/**
 * Extends those leases of this pod that have not run out. A lost reply is harmless: they are longer than we think. A
 * command that was given up may be carried out behind a later one, so none may make a lease shorter.
 */
export async function renewLeases({ partitions }: JobsCollections, mine: Mine, until: Date): Promise<void> {
  await partitions.updateMany(stillMine(mine), { $max: { lease_until: until } });
}

/** Which of them are its own, by the database's rule. */
export async function readOwned({ partitions }: JobsCollections, mine: Mine): Promise<PartitionDoc[]> {
  const projection = { partition: 1, owner: 1, lease_token: 1, lease_until: 1 } as const;
  return partitions.find(stillMine(mine), { projection }).toArray();
}

function stillMine({ owner, partitions, now }: Mine): mongo.Filter<PartitionDoc> {
  return { partition: { $in: [...partitions] }, owner, lease_until: { $gt: now } };
}

/** What nobody owns. Looks at every partition: only for a pod whose share is not full. */
export async function readFree({ partitions }: JobsCollections, now: Date): Promise<number[]> {
  const rows = await partitions
    .find({ $or: [{ owner: null }, { lease_until: { $lte: now } }] }, { projection: { _id: 0, partition: 1 } })
    .toArray();
  return rows.map((row) => row.partition);
}

/**
 * Takes free partitions under one new token and reads back what was won, each with the marks its last owner left.
 * Two pods may try the same partition: the update of each row is atomic, so one of them matches it and the other not.
 */
export async function takePartitions(
  collections: JobsCollections,
  take: { partitions: number[]; owner: string; lease_token: string; now: Date; until: Date },
): Promise<PartitionDoc[]> {
  const { owner, lease_token, now, until } = take;
  await collections.partitions.updateMany(
    { partition: { $in: take.partitions }, $or: [{ owner: null }, { lease_until: { $lte: now } }] },
    { $set: { owner, lease_token, lease_until: until } },
  );
  return readTerm(collections, take);
}

/**
 * Gives a partition back after its cells ran dry. Its marks go with it: every outcome under them is written. `unjudged`:
 * tokens of marks that this owner could not judge, or not yet, which stay for the next.
 */
export async function releasePartition(
  { partitions }: JobsCollections,
  term: Term,
  unjudged: readonly string[],
): Promise<boolean> {
  const update = {
    $set: { owner: null, lease_until: null },
    $unset: { lease_token: '' as const },
    $pull: { inflight: { token: { $nin: [...unjudged] } } },
  };
  crashPoint('before_release');
  const result = await partitions.updateOne({ ...term }, update);
  crashPoint('after_release');
  return result.matchedCount === 1;
}

/**
 * `changed`: an admin acted on rows of the partition since `rev` was read, so what was read before may be untrue.
 * `occupied`: a mark of this target stands that the asker may not replace (`by`: its token).
 */
export type Marked =
  { result: 'marked' | 'lost' } | { result: 'changed'; rev: number } | { result: 'occupied'; by: string };

export interface MarkRequest {
  readonly term: Term;
  /** Of the partition, from before the rows of the mark were read. */
  readonly rev: number;
  readonly mark: InflightMark;
  /** Tokens of marks of this target under which nothing is under way any more: the only ones that it may replace. */
  readonly replaces: readonly string[];
}

/**
 * Marks batches as in flight, each in place of its target's last mark; of any number of cells in one command. The last step
 * before a send: it proves in the database that the partition is still ours, and that no admin acted on its rows since the
 * page was read (`rev`). If we die after it, the next owner judges exactly these rows. If its reply is lost, nothing is
 * sent, and the rows are judged as sent: safe, though an at-most-once row may go DEAD.
 *
 * If its reply is lost, it may also be carried out later, behind the mark of the next batch. In its place it would have the
 * next owner judge rows that were never sent instead of those that were, and these would be sent a second time. So each
 * names what it may replace, as known when it was asked for, and no mark that was written since is among them.
 *
 * A command tells how many of its marks were written, not which: where one is missing, a read does.
 */
export async function markInflight(
  { partitions }: JobsCollections,
  requests: readonly MarkRequest[],
  now: Date,
): Promise<Marked[]> {
  const updates = requests.map((request) => markUpdate(request, now));
  const [only] = updates;
  const { matchedCount } =
    updates.length === 1
      ? await partitions.updateOne(only!.filter, only!.update)
      : await partitions.bulkWrite(
          updates.map((updateOne) => ({ updateOne })),
          { ordered: false },
        );
  if (matchedCount === requests.length) return requests.map(() => ({ result: 'marked' }));
  const rows = await partitions
    .find(
      { partition: { $in: requests.map(({ term }) => term.partition) } },
      { projection: { ...MARKED_FIELDS, 'inflight.token': 1, 'inflight.target': 1 } },
    )
    .toArray();
  return requests.map((request) => {
    const row = rows.find(({ partition }) => partition === request.term.partition);
    return asMarked(request, row, now);
  });
}

const MARKED_FIELDS = { _id: 0, partition: 1, owner: 1, lease_token: 1, lease_until: 1, rev: 1 } as const;

function markUpdate(
  { term, rev, mark, replaces }: MarkRequest,
  now: Date,
): { filter: mongo.Filter<PartitionDoc>; update: object[] } {
  const others = { $filter: { input: '$inflight', cond: { $ne: ['$$this.target', { $literal: mark.target }] } } };
  const standing = { $elemMatch: { target: mark.target, token: { $nin: [...replaces] } } };
  return {
    filter: { ...term, lease_until: { $gt: now }, rev: revAsRead(rev), inflight: { $not: standing } },
    update: [{ $set: { inflight: { $concatArrays: [others, [{ $literal: mark }]] } } }],
  };
}

/** A mark that stands, under a term that still does, was written. */
function asMarked({ term, mark, replaces }: MarkRequest, row: PartitionDoc | undefined, now: Date): Marked {
  const ours = row?.owner === term.owner && row.lease_token === term.lease_token;
  if (!ours || row.lease_until === null || row.lease_until <= now) return { result: 'lost' };
  if (row.inflight.some(({ token }) => token === mark.token)) return { result: 'marked' };
  const by = row.inflight.find(({ target, token }) => target === mark.target && !replaces.includes(token));
  if (by) return { result: 'occupied', by: by.token };
  return { result: 'changed', rev: row.rev ?? 0 };
}

/** Partitions that were seeded before there was a `rev` have none until the first admin action. */
function revAsRead(rev: number): mongo.Condition<number | undefined> {
  return rev === 0 ? { $in: [0, null as unknown as number] } : rev;
}

/** Removes the marks of earlier terms after they were judged. */
export async function pullMarks(
  { partitions }: JobsCollections,
  term: Term,
  tokens: string[],
): Promise<'pulled' | 'lost'> {
  const result = await partitions.updateOne({ ...term }, { $pull: { inflight: { token: { $in: tokens } } } });
  return result.matchedCount === 1 ? 'pulled' : 'lost';
}

export async function beatHeart(
  { workers }: JobsCollections,
  worker: Omit<WorkerDoc, 'heartbeat_at'>,
  now: Date,
): Promise<void> {
  const { pod_id, ...facts } = worker;
  await workers.updateOne({ pod_id }, { $set: { ...facts, heartbeat_at: now } }, { upsert: true });
}

export async function livePods({ workers }: JobsCollections, lane: JobLane, since: Date): Promise<string[]> {
  const rows = await workers
    .find({ heartbeat_at: { $gt: since }, lanes: lane }, { projection: { _id: 0, pod_id: 1 } })
    .toArray();
  return rows.map((row) => row.pod_id);
}

/** This pod is gone, and so is what died long ago. */
export async function removeWorker({ workers }: JobsCollections, pod_id: string, deadSince: Date): Promise<void> {
  await workers.deleteMany({ $or: [{ pod_id }, { heartbeat_at: { $lt: deadSince } }] });
}

/** What a take won, also one that was never seen answered. */
export async function readTerm(
  { partitions }: JobsCollections,
  take: { partitions: readonly number[]; owner: string; lease_token: string },
): Promise<PartitionDoc[]> {
  const { owner, lease_token } = take;
  return partitions.find({ partition: { $in: [...take.partitions] }, owner, lease_token }).toArray();
}
