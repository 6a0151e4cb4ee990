import { describe, expect, it } from '@jest/globals';
import type { Job } from '../../src/jobs/jobs.types.js';
import { toRecord } from '../../src/kafka/kafka.message.js';
import { createPartitioner, placeIn } from '../../src/kafka/partitions.js';

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

const partitionsOf = (count: number, led: (id: number) => boolean = () => true) =>
  Array.from({ length: count }, (_, partitionId) => ({
    partitionId,
    leader: led(partitionId) ? 1 : -1,
    partitionErrorCode: 0,
    replicas: [1],
    isr: [1],
  }));

describe('the partition of a key', () => {
  // A change of the partitioner would reorder every key that has rows on both sides of the change.
  it.each([
    ['DO-1', 7],
    ['DO-2', 10],
    ['DO-3', 4],
    ['DO-100', 8],
    ['ร้าน-7', 0],
  ])('of %s stays %i of 12, whether the client places the record or we do', (key, expected) => {
    const partitionMetadata = partitionsOf(12);
    const args = { topic: 'orders', partitionMetadata, message: { key, value: '' } };
    expect(createPartitioner()(args)).toBe(expected);
    expect(placeIn('orders', partitionMetadata)(toRecord({ ...job, key }, 'orders'))).toBe(expected);
  });

  it('does not change while a partition has no leader', () => {
    const place = placeIn(
      'orders',
      partitionsOf(12, (id) => id !== 7),
    );
    expect(place(toRecord(job, 'orders'))).toBe(7);
  });
});

describe('the partition of a record without a key', () => {
  const without = (id: number) => toRecord({ ...job, key: undefined, id: `event-${id}` }, 'orders');
  const ids = Array.from({ length: 100 }, (_, id) => id);

  it('is the same each time, and all partitions get their share', () => {
    const [one, again] = [placeIn('orders', partitionsOf(4)), placeIn('orders', partitionsOf(4))];
    expect(ids.map((id) => one(without(id)))).toEqual(ids.map((id) => again(without(id))));
    expect(new Set(ids.map((id) => one(without(id)))).size).toBe(4);
  });

  it('has a leader, where one has', () => {
    const place = placeIn(
      'orders',
      partitionsOf(4, (id) => id > 1),
    );
    expect(new Set(ids.map((id) => place(without(id))))).toEqual(new Set([2, 3]));
    const none = placeIn(
      'orders',
      partitionsOf(2, () => false),
    );
    expect([0, 1]).toContain(none(without(1)));
  });
});
