/** The hook of a row that goes DEAD, when it fails because a connection broke under it. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { JobLane } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected } from '../../src/jobs/targets/target_errors.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

/** What the driver says to whoever waits for a connection while another one breaks: without a transaction's label. */
const poolCleared = (): Error =>
  Object.assign(new Error('Connection pool was cleared because another operation failed'), {
    name: 'MongoPoolClearedError',
  });

describe('on_dead while connections break', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  /** A pod whose rows go DEAD at once, with a hook that writes a line and fails while `failures` has something left. */
  async function mourner(lane: JobLane, failures: Error[]): Promise<TestPod> {
    const target: JobTargetOptions = {
      name: 'test:work',
      lane,
      handler: () => Promise.reject(new JobRejected('never')),
      on_dead: async (job, tx) => {
        const { session } = tx;
        await pod.connection.collection('mourned').insertOne({ job: job.id }, { session });
        const failure = failures.shift();
        if (failure) throw failure;
      },
    };
    const pod: TestPod = await db.pod({ partitions: 1 }, [target]);
    await pod.connection.createCollection('mourned').catch(() => undefined);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueue('test:work', 1);
    await pod.drain();
    return pod;
  }

  const mourned = (pod: TestPod): Promise<number> => pod.connection.collection('mourned').countDocuments();

  it.each([
    ['fast', 'says so', poolCleared()],
    ['long', 'says so', poolCleared()],
    ['long', 'names it as its cause', new Error('no obituary', { cause: poolCleared() })],
  ] as const)(
    'on the %s lane a hook that %s is called again, and its row goes DEAD with it',
    async (lane, _, failure) => {
      const pod = await mourner(lane, [failure, failure]);
      expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD' }]);
      expect(await mourned(pod)).toBe(1);
      expect(pod.eventsOf('on_dead_failed')).toEqual([]);
    },
  );

  it('a hook whose own connection stays broken does not keep the row alive', async () => {
    const pod = await mourner('long', Array.from({ length: 1_000 }, poolCleared));
    expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD' }]);
    expect(await mourned(pod)).toBe(0);
    expect(pod.eventsOf('on_dead_failed')).toHaveLength(1);
  });
});
