/** What a round of a cell leaves undone, or does too much of, when its target rests, its partition leaves or an answer is lost. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import type { Job } from '../../src/jobs/jobs.types.js';
import { bumpRevision, releaseKey, removeIn } from '../../src/jobs/store/admin_change.store.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { TargetOutcomeUnknown, TargetUnreachable } from '../../src/jobs/targets/target_errors.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const db = new TestDatabase();
afterEach(() => db.reset());
afterAll(() => db.drop());

async function owner(
  target: Partial<JobTargetOptions>,
  clock = new FakeClock(),
  options: JobsModuleOptions = {},
): Promise<TestPod> {
  const named = { name: T, lane: 'fast', ...target } as JobTargetOptions;
  const pod = await db.pod({ partitions: 1, hints: 'off', ...options }, [named], clock);
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

describe('followers of a head that an admin cancels', () => {
  const MONTH = 30 * 24 * 3_600_000;

  /** A handler that remembers, and a key whose head waits for a month with one that is due behind it. */
  async function waiting(): Promise<{ pod: TestPod; ran: number[] }> {
    const ran: number[] = [];
    const pod = await owner({ handler: async (job: Job) => void ran.push(job.version) });
    await pod.sideEffect.enqueue(T, 1, { key: 'k', version: 1, delay_ms: MONTH });
    await pod.sideEffect.enqueue(T, 2, { key: 'k', version: 2 });
    return { pod, ran };
  }

  /** What the admin API does with a waiting head. `beforeRemoval`: once, when the transaction has seen the rows. */
  async function cancelHead(pod: TestPod, beforeRemoval = (): Promise<unknown> => Promise.resolve()): Promise<void> {
    let once: typeof beforeRemoval | undefined = beforeRemoval;
    const head = (await pod.jobs.findOne({ version: 1 }))!;
    await inTransaction(pod.connection, async ({ session }) => {
      await bumpRevision(session, pod.collections, head.partition);
      await pod.jobs.findOne({ _id: head._id }, { session });
      await once?.().finally(() => (once = undefined));
      await removeIn(session, pod.collections, head._id, 'PENDING');
      await releaseKey(session, pod.collections, head, pod.now());
    });
  }

  it('run, when the cancel comes between the read of the page and the deferral', async () => {
    const { pod, ran } = await waiting();
    const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
    pod.jobs.bulkWrite = async (...args) => {
      pod.jobs.bulkWrite = bulkWrite;
      await cancelHead(pod);
      return bulkWrite(...args);
    };
    await pod.drain();
    expect(ran).toEqual([2]);
  });

  it('run, when the deferral comes between the read of the cancel and its commit', async () => {
    const { pod, ran } = await waiting();
    await cancelHead(pod, () => pod.lane.runOnce());
    await pod.drain();
    expect(ran).toEqual([2]);
  });

  it('run, when the deferral had taken the time of their own retry', async () => {
    const { pod, ran } = await waiting();
    await pod.jobs.updateOne({ version: 2 }, { $set: { attempts: 1 } });
    await pod.drain();
    expect(ran).toEqual([]);
    await cancelHead(pod);
    await pod.drain();
    expect(ran).toEqual([2]);
  });

  it('stay deferred while the head is there', async () => {
    const { pod, ran } = await waiting();
    await pod.drain();
    expect(ran).toEqual([]);
    const [head, follower] = await pod.jobs.find({}, { sort: { version: 1 } }).toArray();
    expect(follower!.next_run_at).toEqual(head!.next_run_at);
  });
});

describe('a page', () => {
  it('that the server cut by its bytes does not hold up the keys behind it', async () => {
    const ran: (string | undefined)[] = [];
    const mib = (count: number): string => 'x'.repeat(count * 1024 * 1024);
    const pod = await owner({ handler: async (job: Job) => void ran.push(job.key) }, new FakeClock(), {
      max_payload_bytes: 15 * 1024 * 1024,
      fast_lane: { batch_bytes: 8 * 1024 * 1024 },
    });
    await pod.sideEffect.enqueue(T, mib(2), { key: 'a', version: 1, delay_ms: 7 * 24 * 3_600_000 });
    await pod.sideEffect.enqueue(T, mib(14.9), { key: 'a', version: 2 });
    await pod.sideEffect.enqueue(T, 'b', { key: 'b' });
    await pod.drain();
    expect(ran).toEqual(['b']);
  });

  it('whose end cut a key takes what may be due behind the cut out of the probe', async () => {
    const pod = await owner({ handler: () => Promise.resolve() }, new FakeClock(), { fast_lane: { batch_size: 2 } });
    const delay_ms = 60_000;
    await pod.sideEffect.enqueue(T, 1, { key: 'a', version: 1, delay_ms });
    await pod.sideEffect.enqueue(T, 2, { key: 'a', version: 2, delay_ms });
    await pod.sideEffect.enqueueMany([3, 4].map((version) => ({ target: T, payload: version, key: 'a', version })));
    await pod.drain();
    expect(await pod.jobs.countDocuments({ next_run_at: { $lte: pod.now() } })).toBe(0);
  });
});

describe('a round', () => {
  it('reads anew when its page has grown old: rows of it may have been overtaken', async () => {
    const clock = new FakeClock();
    let ran = 0;
    const handler = async (): Promise<void> => {
      ran++;
      clock.advance(2_001);
    };
    const pod = await owner({ handler }, clock);
    await pod.sideEffect.enqueueMany([1, 2].map((payload) => ({ target: T, payload, key: `k${payload}` })));
    await pod.lane.runOnce();
    expect(ran).toBe(1);
    await pod.lane.runOnce();
    expect(ran).toBe(2);
  });

  it('defers no row that comes before the waiting head', async () => {
    const ran: number[] = [];
    const pod = await owner({ handler: async (job: Job) => void ran.push(job.version) });
    await pod.sideEffect.enqueue(T, 1, { key: 'k', version: 1, delay_ms: 60_000 });
    await pod.sideEffect.enqueue(T, 2, { key: 'k', version: 2 });
    const bulkWrite = pod.jobs.bulkWrite.bind(pod.jobs);
    pod.jobs.bulkWrite = async (...args) => {
      pod.jobs.bulkWrite = bulkWrite;
      await pod.sideEffect.enqueue(T, 0, { key: 'k', version: 0 });
      return bulkWrite(...args);
    };
    await pod.drain();
    expect(ran).toEqual([0]);
  });

  it('marks rows of a partition that was stored without a count of admin actions', async () => {
    let ran = 0;
    const pod = await owner({ handler: async () => void ran++ });
    await pod.collections.partitions.updateMany({}, { $unset: { rev: '' } });
    await pod.sideEffect.enqueue(T, 1);
    await pod.drain();
    expect(ran).toBe(1);
  });

  it('probes with another row than the one that found the target down, which is charged when it alone ends unknown', async () => {
    const clock = new FakeClock();
    const ran: unknown[] = [];
    const handler = async ({ payload }: Job): Promise<void> => {
      ran.push(payload);
      if (payload === 'bad') throw new TargetOutcomeUnknown('no answer');
    };
    const pod = await owner({ handler, delivery_mode: 'at_least_once', max_in_flight: 1 }, clock);
    await pod.sideEffect.enqueue(T, 'bad', { key: 'a' });
    await pod.sideEffect.enqueue(T, 'good', { key: 'b' });
    await pod.lane.runOnce();
    expect(ran).toEqual(['bad']);
    for (let step = 0; step < 3; step++) {
      clock.advance(10_000);
      await pod.leases.heartbeat();
    }
    await pod.lane.runOnce();
    expect(ran).toEqual(['bad', 'good']);
    await pod.drain();
    expect(ran).toEqual(['bad', 'good', 'bad']);
    expect(await pod.jobs.find({}).toArray()).toMatchObject([{ payload: 'bad', attempts: 1, status: 'PENDING' }]);
    expect(pod.eventsOf('target_paused')).toHaveLength(1);
  });
});
