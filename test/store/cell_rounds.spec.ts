/** What a round of a cell leaves undone, or does too much of, when its target rests, its partition leaves or an answer is lost. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const db = new TestDatabase();
afterEach(() => db.reset());
afterAll(() => db.drop());

async function owner(target: Partial<JobTargetOptions>, clock = new FakeClock()): Promise<TestPod> {
  const options = { name: T, lane: 'fast', ...target } as JobTargetOptions;
  const pod = await db.pod({ partitions: 1, hints: 'off' }, [options], clock);
  await pod.leases.heartbeat();
  return pod;
}

/** The next bulk write of rows does not reach the database. */
function failNextBulkWrite(pod: TestPod): void {
  const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
  pod.jobs.bulkWrite = () => {
    pod.jobs.bulkWrite = bulkWrite;
    return Promise.reject(new Error('the database is gone'));
  };
}

describe('a kept outcome', () => {
  it('is written while its target rests: a pause may last for days', async () => {
    const pod = await owner({ handler: () => Promise.reject(new TargetUnreachable('connection refused')) });
    await pod.sideEffect.enqueue(T, 1);
    failNextBulkWrite(pod);
    await pod.lane.runOnce();
    expect(pod.eventsOf('outcome_kept')).toHaveLength(1);
    expect(pod.eventsOf('target_paused')).toHaveLength(1);
    await pod.lane.runOnce();
    const [partition] = await pod.collections.partitions.find({}).toArray();
    expect((await pod.jobs.findOne({}))!.outcome_token).toBe(partition!.inflight[0]!.token);
  });

  it('is written while its target rests by the loops of a pod, too', async () => {
    const clock = new FakeClock();
    const handler = (): Promise<void> => Promise.reject(new TargetUnreachable('connection refused'));
    const pod = await owner({ handler }, clock);
    await pod.sideEffect.enqueue(T, 1);
    failNextBulkWrite(pod);
    await pod.lane.runOnce();
    const written = new Promise<void>((resolve) => {
      const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
      pod.jobs.bulkWrite = async (...args) => {
        const answer = await bulkWrite(...args);
        resolve();
        return answer;
      };
    });
    pod.lane.start();
    await written;
    const [partition] = await pod.collections.partitions.find({}).toArray();
    expect((await pod.jobs.findOne({}))!.outcome_token).toBe(partition!.inflight[0]!.token);
  });
});

describe('a partition on its way out', () => {
  it('is not read any more', async () => {
    const pod = await owner({ handler: () => Promise.resolve() });
    await pod.sideEffect.enqueue(T, 1);
    const [owned] = pod.leases.readable();
    pod.lane.hint(T, owned!.partition);
    owned!.releasing = true;
    expect(await pod.commandsOf(() => pod.lane.runOnce())).not.toContain('find');
  });

  it('is given back when its last round ends, not with the next heartbeat', async () => {
    const pod = await owner({
      handler: async () => {
        pod.leases.readable()[0]!.releasing = true;
      },
    });
    await pod.sideEffect.enqueueMany([1, 2].map((payload) => ({ target: T, payload, key: `k${payload}` })));
    await pod.lane.runOnce();
    expect(await pod.jobs.countDocuments()).toBe(1);
    expect(await pod.collections.partitions.findOne({})).toMatchObject({ owner: null });
  });
});
