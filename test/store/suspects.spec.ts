/** Rows that ran when their pods died, twice, run one at a time, whatever else holds rows of their target back. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { Job } from '../../src/jobs/jobs.types.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase } from '../support/pod.js';
import { realClock } from '../support/real_clock.js';
import { waitFor } from '../support/wait_for.js';

const T = 'test:work';

const db = new TestDatabase();
afterEach(() => db.reset());
afterAll(() => db.drop());

describe('suspects of the fast lane', () => {
  const targets = ['test:a', 'test:b'];

  it('run one at a time over all cells of a pod, and the others go on', async () => {
    const seen: string[] = [];
    let most = 0;
    let running = 0;
    const ends: (() => void)[] = [];
    const handler = async (job: Job): Promise<void> => {
      seen.push(`${job.target} ${String(job.payload as string)}`);
      if (job.payload !== 'suspect') return;
      most = Math.max(most, ++running);
      await new Promise<void>((resolve) => ends.push(resolve));
      running--;
    };
    const pod = await db.pod(
      { partitions: 1, workers: 'on', fast_lane: { idle_poll_ms: [20] } },
      targets.map((name) => ({ name, lane: 'fast', delivery_mode: 'at_least_once', handler })),
      await realClock(),
    );
    const rows = targets.map((target) => ({ target, payload: 'suspect', key: 'k', delay_ms: 300 }));
    await pod.sideEffect.enqueueMany(rows);
    await pod.jobs.updateMany({}, { $set: { crashes: 2 } });
    await waitFor('one of them runs', () => ends.length === 1);
    const [first] = seen[0]!.split(' ');
    const other = targets.find((target) => target !== first)!;
    await pod.sideEffect.enqueueMany(targets.map((target) => ({ target, payload: 'innocent', key: 'other' })));
    await pod.sideEffect.enqueue(other, 'behind it', { key: 'k' });
    const find = pod.jobs.find.bind(pod.jobs);
    let reads = 0;
    const counted = (...args: Parameters<typeof find>): ReturnType<typeof find> => {
      if (args[0]['target'] === other) reads++;
      return find(...args);
    };
    Object.assign(pod.jobs, { find: counted });
    const looks = new Set<number | undefined>();
    await waitFor('the lane has looked around often', () => looks.add(pod.lane.loop.lastRoundAt).size >= 20);
    expect(reads).toBeLessThan(10); // the cell that holds its suspect is not read at each look
    await waitFor('the first ends', () => {
      ends[0]!();
      return ends.length === 2;
    });
    ends[1]!();
    await waitFor('all have run', async () => (await pod.jobs.countDocuments()) === 0);
    expect(most).toBe(1);
    expect(seen).toHaveLength(5);
  });
});

describe('suspects of a rate-limited target', () => {
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
