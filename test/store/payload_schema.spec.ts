/** Payload schemas against the database: a refused payload writes nothing, an accepted one is stored as it was sent. */
import 'reflect-metadata';
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { IsInt, IsString } from 'class-validator';
import { z } from 'zod';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import { defineTarget } from '../../src/jobs/targets/target_ref.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

class Parcel {
  @IsString() id: string;
  @IsInt() weight: number = 1;
}

const byClass = defineTarget('parcel:send', { lane: 'fast', schema: Parcel });
const byZod = defineTarget('order:announce', {
  lane: 'fast',
  schema: z.strictObject({ customer: z.object({ id: z.string() }), count: z.number().default(1), at: z.coerce.date() }),
});
const free = defineTarget<{ id: number }>('free:send');

describe('an enqueue to a target with a schema', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function pod(seen: Job[] = []): Promise<TestPod> {
    const handler = (job: Job): Promise<void> => Promise.resolve(void seen.push(job));
    const open = await db.pod({ partitions: 1 }, [
      { ...byClass, handler },
      { ...byZod, handler },
      { ...free, lane: 'fast', handler },
    ]);
    await open.leases.heartbeat();
    return open;
  }

  it('stores and runs what the caller sent, untouched by defaults, coercions and transforms of the schema', async () => {
    const seen: Job[] = [];
    const { sideEffect, jobs, drain } = bound(await pod(seen));
    const sent = { customer: { id: 'c', tier: 3 }, at: '2030-01-01' };
    await sideEffect.enqueue(byZod, sent);
    await sideEffect.enqueue('parcel:send', { id: 'p', more: true });
    const stored = (await jobs.find({}).toArray()).map((row) => row.payload);
    expect(stored).toEqual([sent, { id: 'p', more: true }]);
    await drain();
    expect(seen.map((job) => job.payload)).toEqual(expect.arrayContaining(stored));
  });

  it('judges the JSON value, not the object it was made from', async () => {
    const { sideEffect, jobs } = bound(await pod());
    const id = { toJSON: () => 'p' };
    await sideEffect.enqueue('parcel:send', { id, weight: new Number(2) });
    expect((await jobs.findOne({}))?.payload).toEqual({ id: 'p', weight: 2 });
  });

  it('refuses by name as by reference, with the path, before anything is written', async () => {
    const { sideEffect, jobs, commandsOf } = bound(await pod());
    const fault = { code: 'invalid_payload', field: 'items[0].payload.customer.id' };
    const bad = { customer: { id: 7 }, at: '2030-01-01' };
    const commands = await commandsOf(async () => {
      await expect(sideEffect.enqueue(byZod.name, bad)).rejects.toMatchObject(fault);
      // @ts-expect-error the compiler says so too
      await expect(sideEffect.enqueue(byZod, bad)).rejects.toMatchObject(fault);
    });
    expect(commands).toEqual([]);
    expect(await jobs.countDocuments()).toBe(0);
  });

  it('one bad item of many keeps all of them out, and names itself', async () => {
    const { sideEffect, jobs } = bound(await pod());
    const many = sideEffect.enqueueMany([
      { target: free, payload: { id: 1 } },
      { target: 'parcel:send', payload: { id: 'p', weight: 0.5 } },
    ]);
    await expect(many).rejects.toMatchObject({
      code: 'invalid_payload',
      field: 'items[1].payload.weight',
    });
    expect(await jobs.countDocuments()).toBe(0);
  });

  it('a refusal leaves the caller’s transaction usable', async () => {
    const { sideEffect, jobs, connection } = bound(await pod());
    await inTransaction(connection, async (tx) => {
      await sideEffect.enqueue('parcel:send', {}, {}, tx).catch(() => undefined);
      await sideEffect.enqueue(free, { id: 1 }, {}, tx);
    });
    expect(await jobs.distinct('target')).toEqual(['free:send']);
  });

  it('a reference to a target this pod does not know is an unknown target', async () => {
    const { sideEffect } = bound(await pod());
    const stranger = defineTarget<number>('nobody:knows');
    await expect(sideEffect.enqueue(stranger, 1)).rejects.toMatchObject({ code: 'unknown_target' });
    await expect(sideEffect.enqueue(null as unknown as string, 1)).rejects.toMatchObject({ code: 'unknown_target' });
  });
});

function bound(pod: TestPod): Pick<TestPod, 'sideEffect' | 'jobs' | 'connection' | 'drain' | 'commandsOf'> {
  const { sideEffect, jobs, connection } = pod;
  return { sideEffect, jobs, connection, drain: () => pod.drain(), commandsOf: (work) => pod.commandsOf(work) };
}
