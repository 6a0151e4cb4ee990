import { describe, expect, it } from '@jest/globals';
import { Partitioners } from 'kafkajs';
import type { Job } from '../../src/jobs/jobs.types.js';
import { toRecord } from '../../src/kafka/kafka.message.js';

const job: Job = {
  id: '65f000000000000000000001',
  target: 'kafka:orders',
  code: 'order_changed',
  key: 'DO-1',
  version: 1,
  payload: { no: 'DO-1', note: null },
  dedupe_key: 'order_changed:DO-1:1',
  headers: {},
  attempts: 0,
  created_at: new Date(0),
};

describe('the record of a job', () => {
  it('has the payload as JSON, the key, and the id as event_id', () => {
    expect(toRecord(job, 'orders')).toEqual({
      topic: 'orders',
      key: 'DO-1',
      value: '{"no":"DO-1","note":null}',
      headers: { event_id: job.id },
    });
  });

  it('has the event_id of the headers when they name one, and the trace of the context', () => {
    const traced = { ...job, headers: { event_id: 'mine', shop: '7' }, traceparent: '00-a-b-01', trace_id: 'a' };
    expect(toRecord(traced, 'orders').headers).toEqual({
      event_id: 'mine',
      shop: '7',
      traceparent: '00-a-b-01',
      trace_id: 'a',
    });
  });

  it('has no key when the job has none', () => {
    expect(toRecord({ ...job, key: undefined }, 'orders').key).toBeNull();
  });

  it('is no tombstone when the payload is null', () => {
    expect(toRecord({ ...job, payload: null }, 'orders').value).toBe('null');
  });

  it('is refused for good when there is no payload', () => {
    const empty = { ...job, payload: undefined } as unknown as Job;
    expect(() => toRecord(empty, 'orders')).toThrow('not-sent, invalid record: the payload is empty');
  });
});

describe('the partition of a key', () => {
  // A change of the partitioner would reorder every key that has rows on both sides of the change.
  it.each([
    ['DO-1', 7],
    ['DO-2', 10],
    ['DO-3', 4],
    ['DO-100', 8],
    ['ร้าน-7', 0],
  ])('of %s stays %i of 12', (key, expected) => {
    const partitionMetadata = Array.from({ length: 12 }, (_, partitionId) => ({
      partitionId,
      leader: 1,
      partitionErrorCode: 0,
      replicas: [1],
      isr: [1],
    }));
    const partition = Partitioners.DefaultPartitioner();
    expect(partition({ topic: 'orders', partitionMetadata, message: { key, value: '' } })).toBe(expected);
  });
});
