/** Whatever a handler, the host or the engine itself throws around a run: the run has an outcome, and the pod lives. */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import { requestContext, type ContextStore } from '../../src/common/request_context.js';
import { JobOutcome } from '../../src/jobs/lanes/outcome.service.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';
const LANES = ['fast', 'long'] as const;

describe('odd errors', () => {
  const db = new TestDatabase();
  const unhandled: unknown[] = [];
  const note = (error: unknown): void => void unhandled.push(error);
  beforeEach(() => void process.on('unhandledRejection', note));
  afterEach(async () => {
    await db.reset();
    process.off('unhandledRejection', note);
    expect(unhandled.splice(0)).toEqual([]);
  });
  afterAll(() => db.drop());

  let calls = 0;
  beforeEach(() => void (calls = 0));

  async function podOf(options: Partial<JobTargetOptions>, context: ContextStore = requestContext): Promise<TestPod> {
    const clock = new FakeClock();
    const handler: JobTargetOptions['handler'] = async () => void calls++;
    const pod = await db.pod({ partitions: 1, context }, [{ name: T, lane: 'fast', handler, ...options }], clock);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueue(T, 1);
    return pod;
  }

  /** A round of both lanes, as their loops would make it: what a round throws is the next one's business. */
  async function round(pod: TestPod): Promise<void> {
    await pod.lane.runOnce().catch(() => undefined);
    await pod.longLane.runOnce().catch(() => undefined);
    await turn();
  }

  describe.each(LANES)('on the %s lane', (lane) => {
    it.each(['at_most_once', 'at_least_once'] as const)(
      '%s: an error whose message is a list is one attempt, and its row waits',
      async (delivery_mode) => {
        const handler = async (): Promise<never> => {
          calls++;
          throw Object.assign(new Error(), { message: ['order not found'] });
        };
        const pod = await podOf({ lane, delivery_mode, handler });
        await round(pod);
        await round(pod);
        expect(calls).toBe(1);
        expect(await pod.jobs.find().toArray()).toMatchObject([
          { status: 'PENDING', attempts: 1, last_error: 'order not found' },
        ]);
      },
    );

    it('a context of the host that fails before the handler is called is one attempt', async () => {
      const run = (): never => {
        throw new Error('no tenant');
      };
      const pod = await podOf({ lane }, { ...requestContext, run });
      await round(pod);
      await round(pod);
      expect(calls).toBe(0);
      expect(await pod.jobs.find().toArray()).toMatchObject([{ attempts: 1, last_error: 'no tenant' }]);
    });

    it('a context of the host that fails after the handler was called does not call it again', async () => {
      const run = (context: object, work: () => unknown): never => {
        void requestContext.run(context, work);
        throw new Error('the context could not be left');
      };
      const pod = await podOf({ lane }, { ...requestContext, run });
      await round(pod);
      await round(pod);
      expect(calls).toBe(1);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it.each(['at_most_once', 'at_least_once'] as const)(
      '%s: a fault of the engine after the run loses neither its outcome nor the pod',
      async (delivery_mode) => {
        const pod = await podOf({ lane, delivery_mode });
        pod.pause.up = () => {
          throw new Error('a fault of the engine');
        };
        await round(pod);
        await round(pod);
        expect(calls).toBe(1);
        expect(await pod.jobs.countDocuments()).toBe(0);
        expect(pod.eventsOf('run_ended')).toMatchObject([{ result: 'success' }]);
      },
    );

    it.each(['at_most_once', 'at_least_once'] as const)(
      '%s: a run whose delay cannot be drawn is one attempt, and its row waits',
      async (delivery_mode) => {
        const handler = async (): Promise<never> => {
          calls++;
          throw new Error('no');
        };
        const pod = await podOf({ lane, delivery_mode, handler });
        const random = (): never => {
          throw new Error('no chance');
        };
        Object.assign(pod.module.get(JobOutcome), { random });
        await round(pod);
        await round(pod);
        expect(calls).toBe(1);
        expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'PENDING', attempts: 1 }]);
      },
    );
  });

  it('of several rows run at once, one context that fails leaves the others their outcomes', async () => {
    let runs = 0;
    const run: ContextStore['run'] = (context, work) => {
      if (++runs === 1) throw new Error('no tenant');
      return requestContext.run(context, work);
    };
    const pod = await podOf({ concurrency: 10, delivery_mode: 'at_most_once' }, { ...requestContext, run });
    await pod.sideEffect.enqueueMany([2, 3].map((payload) => ({ target: T, payload })));
    await round(pod);
    await round(pod);
    expect(calls).toBe(2);
    expect(await pod.jobs.find().toArray()).toMatchObject([{ attempts: 1, last_error: 'no tenant' }]);
  });
});
