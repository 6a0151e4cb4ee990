/** What is told of a row that was to go DEAD: only what it has become, whoever else ended it meanwhile. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { CLOCK } from '../../src/common/ports/clock.js';
import { JOBS_CONFIG, type JobsConfig } from '../../src/jobs/jobs.options.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected } from '../../src/jobs/targets/target_errors.js';
import type { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';
const HOOKS = [
  ['without a hook', {}],
  ['with a hook', { on_dead: async () => undefined }],
] as const;

describe.each(HOOKS)('rows of a target %s', (_, hook) => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  /** A pod that rejects every row, after what `meanwhile` does to it. */
  async function rejecting(
    options: Partial<JobTargetOptions>,
    meanwhile: (pod: TestPod, job: Job) => Promise<unknown>,
  ): Promise<TestPod> {
    const handler = async (job: Job): Promise<never> => {
      await meanwhile(pod, job);
      throw new JobRejected(`never ${job.payload as string}`);
    };
    const target: JobTargetOptions = { name: T, lane: 'long', handler, ...hook, ...options };
    const pod: TestPod = await db.pod({ partitions: 1 }, [target]);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueueMany(['a', 'b', 'c'].map((payload) => ({ target: T, payload, key: payload })));
    return pod;
  }

  const told = (pod: TestPod): string[] => pod.eventsOf('dead').map(({ reason }) => reason);
  const change = (pod: TestPod, { payload }: Job, update: object): Promise<unknown> =>
    payload === 'b' ? pod.jobs.updateOne({ payload: 'b' }, update) : Promise.resolve();

  it.each(['fast', 'long'] as const)('on the %s lane are told DEAD, once each, when they are', async (lane) => {
    const pod = await rejecting({ lane }, () => Promise.resolve());
    await pod.drain();
    expect(told(pod).sort()).toEqual(['never a', 'never b', 'never c']);
    expect(pod.eventsOf('cancelled')).toEqual([]);
  });

  it('that an admin cancelled meanwhile are told cancelled, not DEAD', async () => {
    const cancel_requested = { at: new Date(), by: 'ada', reason: 'wrong file' };
    const pod = await rejecting({}, (at, job) => change(at, job, { $set: { cancel_requested } }));
    await pod.drain();
    expect(await pod.jobs.distinct('payload')).toEqual(['a', 'c']);
    expect(told(pod).sort()).toEqual(['never a', 'never c']);
    expect(pod.eventsOf('cancelled')).toHaveLength(1);
    expect(pod.eventsOf('claim_lost')).toEqual([]);
  });

  it('that another pod claimed meanwhile are told lost, not DEAD', async () => {
    const pod = await rejecting({}, (at, job) => change(at, job, { $set: { claim_token: 'another' } }));
    await pod.drain();
    expect(await pod.jobs.findOne({ payload: 'b' })).toMatchObject({ status: 'RUNNING' });
    expect(told(pod).sort()).toEqual(['never a', 'never c']);
    expect(pod.eventsOf('claim_lost')).toMatchObject([{ count: 1 }]);
    expect(pod.eventsOf('cancelled')).toEqual([]);
  });

  it('of the fast lane that a takeover judged meanwhile are told lost, not DEAD', async () => {
    const pod = await rejecting({ lane: 'fast' }, (at, job) => change(at, job, { $set: { outcome_token: 'judged' } }));
    await pod.lane.runOnce();
    expect(told(pod).sort()).toEqual(['never a', 'never c']);
    expect(pod.eventsOf('outcome_lost')).toMatchObject([{ count: 1 }]);
  });

  it.each(['fast', 'long'] as const)('on the %s lane whose write lost its reply are told DEAD once', async (lane) => {
    const pod = await rejecting({ lane }, () => Promise.resolve());
    const clock = pod.module.get<FakeClock>(CLOCK);
    const { error_poll_ms } = pod.module.get<JobsConfig>(JOBS_CONFIG).long_lane;
    const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
    let writes = 0;
    pod.jobs.bulkWrite = async (operations, options) => {
      const result = await bulkWrite(operations, options);
      if (++writes === 1) throw new Error('the reply is lost');
      return result;
    };
    if (lane === 'fast') await pod.lane.runOnce().catch(() => undefined);
    const drained = pod.drain();
    if (lane === 'long' && !('on_dead' in hook)) {
      await clock.armed(error_poll_ms);
      clock.advance(error_poll_ms);
    }
    await drained;
    expect(await pod.jobs.countDocuments({ status: 'DEAD' })).toBe(3);
    expect(told(pod).sort()).toEqual(['never a', 'never b', 'never c']);
  });
});
