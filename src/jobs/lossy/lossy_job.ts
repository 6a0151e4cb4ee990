/** A lossy job's way through Redis: what is sent, and the row its run sees. Pure. Foreign entries read as `undefined`. */
import mongoose from 'mongoose';
import { JobStatus, type JsonValue } from '../jobs.types.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';

export const LOSSY_QUEUE = 'side_effect_lossy';

/** Names of the contract. What follows `headers` is there only when it was given. */
export interface LossyData {
  target: string;
  code: string;
  key?: string;
  payload: JsonValue;
  trace_id?: string;
  actor?: Record<string, unknown>;
  headers?: Record<string, string>;
  version?: number;
  dedupe_key?: string;
  traceparent?: string;
}

export interface LossyJob {
  /** Hex; the id of the job in Redis and the one its handler sees. */
  id: string;
  data: LossyData;
  bytes: number;
}

/** `given`: what the caller said, as opposed to what the engine filled in. */
export function toLossyJob(row: JobDoc, given: { version?: number; dedupe_key?: string }): LossyJob {
  const { target, code, key, payload, trace_id, actor, headers, traceparent } = row;
  return {
    id: row._id.toHexString(),
    bytes: row.bytes,
    data: {
      target,
      code,
      ...(key !== undefined && { key }),
      payload,
      ...(trace_id !== undefined && { trace_id }),
      ...(actor !== undefined && { actor }),
      ...(headers !== undefined && { headers }),
      ...(given.version !== undefined && { version: given.version }),
      ...(given.dedupe_key !== undefined && { dedupe_key: given.dedupe_key }),
      ...(traceparent !== undefined && { traceparent }),
    },
  };
}

/** The target a queue entry names, however broken the entry is otherwise. */
export function targetOf(data: unknown): string | undefined {
  const target = (data as { target?: unknown } | null | undefined)?.target;
  return typeof target === 'string' ? target : undefined;
}

/** The row a run needs, made of the queue's entry; undefined when the entry is none of ours. */
export function toRow(target: RegisteredTarget, id: string, at: Date, raw: unknown): JobDoc | undefined {
  if (!/^[0-9a-f]{24}$/.test(id) || !isLossyData(raw)) return undefined;
  const dedupe_key = raw.dedupe_key ?? id;
  return {
    _id: new mongoose.Types.ObjectId(id),
    ...raw,
    payload: raw.payload ?? null,
    lane: target.lane,
    order_key: raw.key ?? dedupe_key,
    partition: 0,
    version: raw.version ?? 0,
    dedupe_key,
    status: JobStatus.running,
    attempts: 0,
    crashes: 0,
    priority: 2,
    run_at: at,
    next_run_at: at,
    bytes: 0,
    created_at: at,
    updated_at: at,
  };
}

function isLossyData(raw: unknown): raw is LossyData {
  if (typeof raw !== 'object' || raw === null) return false;
  const data = raw as Record<string, unknown>;
  const texts = ['key', 'trace_id', 'dedupe_key', 'traceparent'] as const;
  return (
    typeof data['target'] === 'string' &&
    typeof data['code'] === 'string' &&
    texts.every((name) => data[name] === undefined || typeof data[name] === 'string') &&
    (data['version'] === undefined || Number.isSafeInteger(data['version'])) &&
    ['actor', 'headers'].every((name) => data[name] === undefined || (typeof data[name] === 'object' && data[name]))
  );
}
