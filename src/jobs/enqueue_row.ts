/**
 * Makes the row of one enqueued job. Everything that can be wrong with it is thrown here, with its field. Runs for every
 * row inside the caller's transaction, so it builds each object once.
 */
import mongoose from 'mongoose';
import { InvalidInputError } from '../common/errors.js';
import { checkEnqueueOptions, checkLossyOptions, type EnqueueOptions } from './enqueue_options.js';
import { JobStatus } from './jobs.types.js';
import { partitionOf } from './policy/partition.js';
import { toJsonValue } from './policy/payload.js';
import type { JobDoc } from './store/jobs.schema.js';
import type { RegisteredTarget } from './targets/job_targets.registry.js';
import { checkPayload } from './targets/payload_schema.js';

/** What the rows of one call have in common. */
export interface CallFacts {
  readonly now: Date;
  readonly partitions: number;
  readonly max_payload_bytes: number;
  readonly trace_id: string;
  readonly traceparent?: string | undefined;
  readonly actor?: Record<string, unknown> | undefined;
  /** Makes the `dedupe_key` of a row whose caller gave none. */
  sortable(): string;
}

/**
 * `field`: where the item stands in the caller's list. Everything of the caller's is copied: the row may be written, or
 * handed to Redis, when the caller has long changed its objects.
 */
export function toRow(
  target: RegisteredTarget,
  item: EnqueueOptions & { readonly payload: unknown },
  call: CallFacts,
  field: string,
): JobDoc {
  checkEnqueueOptions(item, field);
  if (target.lossy) checkLossyOptions(item, field);
  const payload = toJsonValue(item.payload, `${field}.payload`);
  if (target.schema) checkPayload(target.name, target.schema, payload, `${field}.payload`);
  const { now } = call;
  const dedupe_key = item.dedupe_key ?? call.sortable();
  const order_key = item.key ?? dedupe_key;
  const run_at = new Date(item.run_at ?? now.getTime() + (item.delay_ms ?? 0));
  const row: JobDoc = {
    _id: new mongoose.Types.ObjectId(),
    code: item.code ?? target.name,
    target: target.name,
    lane: target.lane,
    order_key,
    partition: partitionOf(order_key, call.partitions),
    version: item.version ?? 0,
    payload,
    dedupe_key,
    status: JobStatus.pending,
    attempts: 0,
    crashes: 0,
    priority: item.priority ?? 2,
    run_at,
    next_run_at: run_at > now ? run_at : now,
    trace_id: call.trace_id,
    bytes: 0,
    created_at: now,
    updated_at: now,
  };
  if (item.key !== undefined) row.key = item.key;
  if (item.dedupe_key === undefined) row.generated_key = true;
  if (call.traceparent) row.traceparent = call.traceparent;
  if (call.actor) row.actor = call.actor;
  if (item.headers) row.headers = { ...item.headers };
  row.bytes = measured(row, call.max_payload_bytes, field);
  return row;
}

const { calculateObjectSize } = mongoose.mongo.BSON;

/** Names, dates and numbers of a row, with room for its longest identifiers; whatever else is in it is measured. */
const PLAIN_BYTES = 1_500;

/**
 * Size of a row in bytes of BSON: what is of any length in it is measured, the rest is taken as a constant, because
 * walking every row once more just for its size costs as much as writing it. Near the limit it is measured exactly.
 */
function measured(row: JobDoc, limit: number, field: string): number {
  const { payload, headers, actor } = row;
  let bytes = PLAIN_BYTES + calculateObjectSize({ payload, headers, actor });
  if (bytes > limit) bytes = calculateObjectSize(row);
  if (bytes <= limit) return bytes;
  const message = `${field}.payload: the row has ${bytes} bytes, at most ${limit} are allowed`;
  throw new InvalidInputError('payload_too_large', message, `${field}.payload`);
}
