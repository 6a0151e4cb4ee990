/** The hook of a row that goes DEAD, when it fails because a connection broke under it. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import type { mongo } from 'mongoose';
import { CLOCK } from '../../src/common/ports/clock.js';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { JobLane } from '../../src/jobs/jobs.types.js';
import { JobOutcome } from '../../src/jobs/lanes/outcome.service.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { waitFor } from '../support/wait_for.js';

/** What the driver says to whoever waits for a connection while another one breaks: without a transaction's label. */
const poolCleared = (): Error =>
  Object.assign(new Error('Connection pool was cleared because another operation failed'), {
    name: 'MongoPoolClearedError',
  });

/** To a judgement that is under way while its pod ends. */
const clientClosed = (): Error =>
  Object.assign(new Error('Operation interrupted because client was closed'), { name: 'MongoClientClosedError' });

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
    ['fast', 'meets the end of its pod', clientClosed()],
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

  describe('faults of the hook itself', () => {
    const LANES = ['fast', 'long'] as const;
    const T = 'test:work';

    const clockOf = (pod: TestPod): FakeClock => pod.module.get<FakeClock>(CLOCK);

    /** A pod with one row that goes DEAD under this hook; on the long lane a row that succeeds stands behind it. */
    async function rowsUnder(lane: JobLane, on_dead: (pod: TestPod) => JobTargetOptions['on_dead']): Promise<TestPod> {
      const target: JobTargetOptions = {
        name: T,
        lane,
        handler: ({ payload }) => (payload === 'good' ? Promise.resolve() : Promise.reject(new JobRejected('never'))),
        on_dead: (job, tx) => on_dead(pod)!(job, tx),
      };
      const pod: TestPod = await db.pod({ partitions: 1 }, [target]);
      await pod.connection.createCollection('mourned').catch(() => undefined);
      await pod.leases.heartbeat();
      await pod.sideEffect.enqueueMany(['bad', 'good'].map((payload, i) => ({ target: T, payload, key: `${i}` })));
      return pod;
    }

    async function expectDead(pod: TestPod, error: unknown): Promise<void> {
      expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD', payload: 'bad', last_error: 'never' }]);
      expect(pod.eventsOf('on_dead_failed')).toMatchObject([{ error }]);
      expect(pod.eventsOf('dead')).toHaveLength(1);
      expect(pod.eventsOf('outcome_kept')).toEqual([]);
    }

    it.each(LANES)(
      'on the %s lane a duplicate key that it swallows is called off within seconds',
      async (lane) => {
        let calls = 0;
        const pod = await rowsUnder(lane, ({ connection }) => async ({ id }, { session }) => {
          calls++;
          const _id = id as unknown as mongo.ObjectId;
          await connection
            .collection('mourned')
            .insertOne({ _id }, { session })
            .catch(() => undefined);
        });
        for (const { _id } of await pod.jobs.find().toArray()) {
          await pod.connection.collection('mourned').insertOne({ _id: _id.toHexString() as unknown as mongo.ObjectId });
        }
        await pod.drain();
        await expectDead(pod, { message: expect.stringContaining('was aborted') });
        expect(calls).toBe(20);
      },
      30_000,
    );

    it.each(LANES)('on the %s lane one that never comes back holds its row up for 10 s at most', async (lane) => {
      let called!: () => void;
      const hanging = new Promise<void>((resolve) => (called = resolve));
      const pod = await rowsUnder(lane, () => () => {
        called();
        return new Promise(() => undefined);
      });
      const drained = pod.drain();
      await hanging;
      clockOf(pod).advance(10_000);
      await drained;
      await expectDead(pod, { message: expect.stringContaining('within 10000 ms') });
    });

    it('one that hangs holds up no other outcome of its pod', async () => {
      let called!: () => void;
      const hanging = new Promise<void>((resolve) => (called = resolve));
      const pod = await rowsUnder('long', () => () => {
        called();
        return new Promise(() => undefined);
      });
      const drained = pod.drain();
      await hanging;
      await waitFor('the row that succeeded is gone', async () => (await pod.jobs.countDocuments()) === 1);
      clockOf(pod).advance(10_000);
      await drained;
    });

    it.each<[string, (pod: TestPod) => JobTargetOptions['on_dead'], object]>([
      ['throws nothing at all', () => () => Promise.reject(undefined as unknown as Error), {}],
      [
        'swallows what dooms its transaction',
        ({ connection }) =>
          async () => {
            const work = (): Promise<never> => Promise.reject(new Error('doomed'));
            await inTransaction(connection, work).catch(() => undefined);
          },
        { message: 'doomed' },
      ],
      [
        'aborts its transaction',
        () =>
          (_, { session }) =>
            session.abortTransaction(),
        { code: 'transaction_ended' },
      ],
    ])('one that %s does not keep the row alive', async (_, on_dead, error) => {
      const pod = await rowsUnder('long', on_dead);
      await pod.drain();
      expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD' }]);
      const [failed] = pod.eventsOf('on_dead_failed');
      if (Object.keys(error).length > 0) expect(failed!.error).toMatchObject(error);
      else expect(failed!.error).toBeUndefined();
    });

    it('an expired row that cannot be written does not hide those behind it from the sweep', async () => {
      const clock = new FakeClock();
      const hang = (): Promise<void> => new Promise(() => undefined);
      const target: JobTargetOptions = { name: T, lane: 'long', handler: hang };
      const dying = await db.pod({}, [target], clock);
      await dying.sideEffect.enqueueMany([1, 2, 3].map((payload) => ({ target: T, payload })));
      await dying.longLane.startOnce();
      await dying.die();
      const pod = await db.pod({}, [target], clock);
      const first = await pod.jobs.findOne({ payload: 1 });
      const outcome = pod.module.get(JobOutcome);
      const writeJudged = outcome.writeJudged.bind(outcome);
      outcome.writeJudged = (judged) =>
        judged[0]!.row._id.equals(first!._id) ? Promise.reject(new Error('cannot be written')) : writeJudged(judged);
      clock.advance(5 * 60_000);
      expect(await pod.sweeper.sweep()).toBe(2);
      expect(await pod.jobs.countDocuments({ status: 'PENDING' })).toBe(2);
      expect(pod.eventsOf('loop_failed')).toMatchObject([{ loop: 'sweep', error: { message: 'cannot be written' } }]);
    });
  });
});
