/** Job to Kafka record: the wire contract. Pure. Never makes a tombstone: a `null` payload is the text `null`. */
import type { Job } from '../jobs/jobs.types.js';
import { JobRejected } from '../jobs/targets/target_errors.js';

export interface KafkaRecord {
  readonly topic: string;
  readonly key: string | null;
  readonly value: string;
  readonly headers: Readonly<Record<string, string>>;
}

export const INVALID_RECORD = 'not-sent, invalid record';

/** Throws `JobRejected` where there is nothing to send. */
export function toRecord(job: Job, topic: string): KafkaRecord {
  const value = JSON.stringify(job.payload) as string | undefined;
  if (value === undefined) throw new JobRejected(`${INVALID_RECORD}: the payload is empty`);
  const headers = {
    event_id: job.id,
    ...job.headers,
    ...(job.traceparent !== undefined && { traceparent: job.traceparent }),
    ...(job.trace_id !== undefined && { trace_id: job.trace_id }),
  };
  return { topic, key: job.key ?? null, value, headers };
}
