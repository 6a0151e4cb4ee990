/** Rows that ran when their pods died, twice, run one at a time, whatever else holds rows of their target back. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { Job } from '../../src/jobs/jobs.types.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase } from '../support/pod.js';

const T = 'test:work';

describe('suspects of a rate-limited target', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  it('run one at a time, and those that wait take no slot of the limit', async () => {
    const clock = new FakeClock();
    const seen: unknown[] = [];
    let open = (): void => undefined;
    const opened = new Promise<void>((resolve) => (open = resolve));
    const handler = async (job: Job): Promise<void> => {
      seen.push(job.payload);
      await opened;
    };
    const rate_limit = { key: () => 'all', limit: 100, window_ms: 60_000 };
    const pod = await db.pod({}, [{ name: T, lane: 'long', handler, rate_limit }], clock);
    await pod.sideEffect.enqueueMany([1, 2, 3].map((payload) => ({ target: T, payload })));
    await pod.jobs.updateMany({}, { $set: { crashes: 2 } });
    await pod.sideEffect.enqueue(T, 'innocent');

    await pod.longLane.startOnce();
    open();
    await pod.longLane.idle();

    expect(seen).toHaveLength(2);
    expect(seen).toContain('innocent');
    const later = new Date(clock.now().getTime() + 10_000);
    expect(await pod.jobs.find().toArray()).toMatchObject([1, 2].map(() => ({ crashes: 2, next_run_at: later })));
    const [limit] = await pod.collections.rateLimits.find().toArray();
    expect(limit!.slots.reduce((sum, { n }) => sum + n, 0)).toBe(2);
  });
});
