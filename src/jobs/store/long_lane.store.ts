/**
 * Claims, renewals and sweeps of the long lane.
 *
 * Fences: a claim names a row that is PENDING and due; everything after it names the row RUNNING under this claim's own
 * token. A write that matches nothing means that somebody else was first, a normal result. Reads name `status` and
 * `lane`, so that the partial indexes apply, one target at a time: there priority and due time come in index order.
 */
import { oneBatch } from '../../common/utils/one_batch.js';
import type { mongo, Types } from 'mongoose';
import { JobStatus } from '../jobs.types.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';
import { fenceOf } from './outcome_update.js';
import { isDuplicateKey } from './write_errors.js';

const PENDING_LONG = { status: 'PENDING', lane: 'long' } as const;

/**
 * Which of these targets have due rows? One query for all, in index order: without the sort a server may look at the whole
 * backlog first. `full`: the limit was reached, so others may have rows that were not looked at. */
export async function findTargetsWithWork(
  { jobs }: JobsCollections,
  targets: readonly string[],
  now: Date,
  limit: number,
): Promise<{ found: string[]; full: boolean }> {
  const target = targets.length === 1 ? targets[0]! : { $in: [...targets] };
  const rows = await jobs
    .find(
      { ...PENDING_LONG, target, priority: { $gte: 1 }, next_run_at: { $lte: now } },
      {
        projection: { _id: 0, target: 1 },
        sort: { target: 1, priority: -1, next_run_at: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'due_long',
      },
    )
    .toArray();
  return { found: [...new Set(rows.map((row) => row.target))], full: rows.length >= limit };
}

export type DueRow = Pick<JobDoc, '_id' | 'target' | 'code' | 'priority' | 'next_run_at'>;

/** Due rows of one target, the most urgent first, answered from the index alone. Rows of busy codes are left out. */
export async function readDue(
  { jobs }: JobsCollections,
  { target, busy, now, limit }: { target: string; busy: readonly string[]; now: Date; limit: number },
): Promise<DueRow[]> {
  const codes = busy.length > 0 ? { code: { $nin: [...busy] } } : {};
  return jobs
    .find(
      { ...PENDING_LONG, target, priority: { $gte: 1 }, next_run_at: { $lte: now }, ...codes },
      {
        projection: { _id: 1, target: 1, code: 1, priority: 1, next_run_at: 1 },
        sort: { priority: -1, next_run_at: 1, _id: 1 },
        ...oneBatch(limit),
        hint: 'due_long',
      },
    )
    .toArray();
}

/** Who holds the places of exclusive codes. As many rows as run exclusively over all pods. */
export async function findRunningCodes({ jobs }: JobsCollections): Promise<{ code: string; running_code: string }[]> {
  const rows = await jobs
    .find(
      { status: 'RUNNING', running_code: { $exists: true } },
      { projection: { _id: 0, code: 1, running_code: 1 }, hint: 'running' },
    )
    .toArray();
  return rows.flatMap(({ code, running_code }) => (running_code === undefined ? [] : [{ code, running_code }]));
}

export interface Claim {
  readonly pod: string;
  /** New for every claim: the fence of all that follows. */
  readonly token: string;
  readonly now: Date;
  readonly until: Date;
}

/**
 * Claims what is left of these rows; answers how many. Two pods may try the same: the update of each row is atomic, so one
 * of them matches it. If the reply is lost, `readClaimed` tells what was won; if we die before that, the lease runs out.
 */
export async function claimRows(
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
  claim: Claim,
): Promise<number> {
  const result = await jobs.updateMany(
    { _id: { $in: [...ids] }, ...PENDING_LONG, next_run_at: { $lte: claim.now } },
    claimUpdate(claim),
  );
  return result.matchedCount;
}

export async function readClaimed(
  { jobs }: JobsCollections,
  ids: readonly Types.ObjectId[],
  ...tokens: string[]
): Promise<JobDoc[]> {
  const claim_token = tokens.length === 1 ? tokens[0]! : { $in: tokens };
  return jobs.find({ _id: { $in: [...ids] }, status: 'RUNNING', claim_token }, { projection: RUN_FIELDS }).toArray();
}

/** A run does not need these of its row. */
const RUN_FIELDS = {
  status: 0,
  partition: 0,
  order_key: 0,
  priority: 0,
  run_at: 0,
  updated_at: 0,
  claimed_by: 0,
  lease_until: 0,
  history: 0,
  last_error: 0,
  bytes: 0,
} as const;

/**
 * Claims one row of an exclusive code. The unique index `running` decides over all pods: `busy` means that this place of
 * the code is taken, `taken` that the row is not there to be claimed any more.
 */
export async function claimExclusive(
  { jobs }: JobsCollections,
  id: Types.ObjectId,
  running_code: string,
  claim: Claim,
): Promise<JobDoc | 'busy' | 'taken'> {
  const filter = { _id: id, ...PENDING_LONG, next_run_at: { $lte: claim.now } };
  try {
    const row = await jobs.findOneAndUpdate(filter, claimUpdate(claim, running_code), { returnDocument: 'after' });
    return row ?? 'taken';
  } catch (error) {
    if (isDuplicateKey(error)) return 'busy';
    throw error;
  }
}

function claimUpdate({ pod, token, now, until }: Claim, running_code?: string): mongo.UpdateFilter<JobDoc> {
  return {
    $set: {
      status: JobStatus.running,
      claimed_by: pod,
      claim_token: token,
      lease_until: until,
      started_at: now,
      ...(running_code !== undefined && { running_code }),
    },
  };
}

export type ClaimedRow = Pick<JobDoc, '_id' | 'lane' | 'attempts' | 'claim_token'>;

/**
 * Extends the leases of running rows in one update. Answers how many are still ours. A renewal that arrives late, behind
 * a later one that was sent because its answer did not come, shortens nothing.
 */
export async function renewClaims(
  { jobs }: JobsCollections,
  rows: readonly ClaimedRow[],
  until: Date,
): Promise<number> {
  const result = await jobs.updateMany(stillOurs(rows), { $max: { lease_until: until } });
  return result.matchedCount;
}

/** Which of these claims still stand? Read after a renewal that matched fewer rows than it named. */
export async function findOwned({ jobs }: JobsCollections, rows: readonly ClaimedRow[]): Promise<Set<string>> {
  const found = await jobs.find(stillOurs(rows), { projection: { claim_token: 1 } }).toArray();
  return new Set(found.map((row) => claimId(row)));
}

/** A claim by name: the same row may be claimed again, under another token. */
export const claimId = (row: Pick<JobDoc, '_id' | 'claim_token'>): string =>
  `${row._id.toHexString()}:${row.claim_token}`;

/** Tokens are unique, so a row that matches id and one of the tokens is, but for a re-claim, the one that was named. */
function stillOurs(rows: readonly ClaimedRow[]): mongo.Filter<JobDoc> {
  const tokens = [...new Set(rows.map((row) => row.claim_token!))];
  return {
    _id: { $in: rows.map((row) => row._id) },
    status: JobStatus.running,
    claim_token: tokens.length === 1 ? tokens[0]! : { $in: tokens },
  };
}

/** Which of the running rows does an admin want gone? */
export async function findCancelRequests({ jobs }: JobsCollections, rows: readonly ClaimedRow[]): Promise<Set<string>> {
  const found = await jobs
    .find({ ...stillOurs(rows), cancel_requested: { $exists: true } }, { projection: { claim_token: 1 } })
    .toArray();
  return new Set(found.map((row) => claimId(row)));
}

/** Writes how far runs are, each under its claim. */
export async function writeProgress(
  { jobs }: JobsCollections,
  reports: readonly { row: ClaimedRow; progress: NonNullable<JobDoc['progress']> }[],
): Promise<void> {
  await jobs.bulkWrite(
    reports.map(({ row, progress }) => ({ updateOne: { filter: fenceOf(row), update: { $set: { progress } } } })),
    { ordered: false },
  );
}

/** Rows of these targets whose lease ran out while they were RUNNING, without their payloads. */
export async function findExpired(
  { jobs }: JobsCollections,
  targets: readonly string[],
  now: Date,
  limit: number,
): Promise<JobDoc[]> {
  return jobs
    .find(
      { status: 'RUNNING', lease_until: { $lte: now }, target: { $in: [...targets] } },
      { projection: { payload: 0, headers: 0 }, sort: { lease_until: 1 }, ...oneBatch(limit), hint: 'leases' },
    )
    .toArray();
}

/** Removes a row whose claim expired after an admin wanted it gone. */
export async function removeCancelled({ jobs }: JobsCollections, row: ClaimedRow, now: Date): Promise<boolean> {
  const result = await jobs.deleteOne({
    ...fenceOf(row),
    lease_until: { $lte: now },
    cancel_requested: { $exists: true },
  });
  return result.deletedCount === 1;
}
