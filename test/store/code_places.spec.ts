/** Places of codes whose names look like places of other codes. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { Job } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';

describe('places of codes that end in # and a number', () => {
  const db = new TestDatabase();
  let seen: string[] = [];
  let open: () => void;
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function pod(options: Partial<JobTargetOptions>): Promise<TestPod> {
    seen = [];
    const opened = new Promise<void>((resolve) => (open = resolve));
    const handler = async (job: Job): Promise<void> => {
      seen.push(job.code);
      await opened;
    };
    return db.pod({}, [{ name: T, lane: 'long', handler, ...options }]);
  }

  const many = (count: number, code: string): { target: string; payload: number; code: string }[] =>
    Array.from({ length: count }, (_, payload) => ({ target: T, payload, code }));

  async function end(a: TestPod): Promise<void> {
    open();
    await a.longLane.idle();
  }

  it('5,000 waiting rows of a busy one do not hide one row of another code', async () => {
    const a = await pod({ exclusive: true });
    await a.sideEffect.enqueueMany(many(1, 'busy#1'));
    await a.longLane.startOnce();
    await a.sideEffect.enqueueMany(many(5000, 'busy#1'));
    await a.sideEffect.enqueue(T, 'other', { code: 'other', priority: 1 });
    expect(await a.longLane.startOnce()).toBe(1);
    expect(seen).toEqual(['busy#1', 'other']);
    await end(a);
  });

  it('a busy one does not make the code before its # busy', async () => {
    const a = await pod({ exclusive: true });
    await a.sideEffect.enqueueMany(many(1, 'busy#1'));
    await a.longLane.startOnce();
    await a.sideEffect.enqueueMany(many(1, 'busy'));
    expect(await a.longLane.startOnce()).toBe(1);
    await end(a);
  });

  it('the second place of a code is not that of the code with #2', async () => {
    const a = await pod({ max_running: 2 });
    await a.sideEffect.enqueueMany([...many(3, 'a'), ...many(3, 'a#2')]);
    await a.longLane.startOnce();
    await a.longLane.startOnce();
    expect([...seen].sort()).toEqual(['a', 'a', 'a#2', 'a#2']);
    await end(a);
  });

  it('a place that an older pod holds under its own name for it counts', async () => {
    const a = await pod({ max_running: 2 });
    await a.sideEffect.enqueueMany(many(3, 'a'));
    const row = (await a.jobs.findOne())!;
    const lease_until = new Date(a.now().getTime() + 60_000);
    const claim = {
      status: 'RUNNING',
      running_code: 'a#2',
      claim_token: 'older',
      claimed_by: 'older',
      lease_until,
    } as const;
    await a.jobs.updateOne({ _id: row._id }, { $set: claim });
    await a.longLane.startOnce();
    await a.longLane.startOnce();
    expect(seen).toEqual(['a']);
    expect(await a.jobs.countDocuments({ status: 'RUNNING' })).toBe(2);
    await end(a);
  });
});
