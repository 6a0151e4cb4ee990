/** The hook of a row that goes DEAD, when the connection breaks in the very write of a command, and when it only looks so. */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { once } from 'node:events';
import http from 'node:http';
import net from 'node:net';
import { CLOCK } from '../../src/common/ports/clock.js';
import { inTransaction } from '../../src/common/utils/transaction.js';
import type { JobLane } from '../../src/jobs/jobs.types.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { JobRejected } from '../../src/jobs/targets/target_errors.js';
import type { FakeClock } from '../support/fake_clock.js';
import { LostCommands } from '../support/lost_commands.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { waitFor } from '../support/wait_for.js';

const T = 'test:work';
const LANES = ['fast', 'long'] as const;

function conflict(): Error {
  const error = new mongoose.mongo.MongoServerError({ message: 'simulated conflict', code: 112 });
  error.addErrorLabel('TransientTransactionError');
  return error;
}

describe('on_dead when a write breaks', () => {
  const db = new TestDatabase();
  let commands: LostCommands;
  let calls: number;
  beforeEach(() => {
    commands = new LostCommands();
    calls = 0;
  });
  afterEach(async () => {
    commands.stop();
    await db.reset();
  });
  afterAll(() => db.drop());

  /** A pod with one row that goes DEAD at once; its hook writes a line and then does what the test wants. */
  async function mourner(lane: JobLane, then: (pod: TestPod) => Promise<unknown> = async () => undefined) {
    const target: JobTargetOptions = {
      name: T,
      lane,
      handler: () => Promise.reject(new JobRejected('never')),
      on_dead: async (job, { session }) => {
        calls++;
        await pod.connection.collection('mourned').insertOne({ job: job.id }, { session });
        await then(pod);
      },
    };
    const pod: TestPod = await db.pod({ partitions: 1, command_timeout_ms: 2_000 }, [target]);
    await pod.connection.createCollection('mourned').catch(() => undefined);
    await pod.leases.heartbeat();
    await pod.sideEffect.enqueue(T, 1);
    return pod;
  }

  const mourned = (pod: TestPod): Promise<number> => pod.connection.collection('mourned').countDocuments();

  /** As the loops would: what a round throws is the next one's business, and what waits for the clock is not kept. */
  async function rounds(pod: TestPod): Promise<void> {
    const clock = pod.module.get<FakeClock>(CLOCK);
    for (let round = 0; round < 3; round++) {
      const run = { over: false };
      const drained = pod
        .drain()
        .catch(() => undefined)
        .finally(() => (run.over = true));
      await waitFor('the lanes ran dry', () => {
        if (pod.eventsOf('outcome_kept').length > 0) clock.advance(100);
        return run.over;
      });
      await drained;
    }
  }

  async function expectMourned(pod: TestPod): Promise<void> {
    expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD' }]);
    expect(await mourned(pod)).toBe(1);
    expect(pod.eventsOf('on_dead_failed')).toEqual([]);
    expect(pod.eventsOf('dead')).toHaveLength(1);
  }

  it.each([
    ['fast', 'whose write breaks', 'reset'],
    ['long', 'whose write breaks', 'reset'],
    ['fast', 'that is lost', 'silent'],
    ['long', 'that is lost', 'silent'],
  ] as const)('on the %s lane a commit %s is no fault of the hook: it is called again', async (lane, _, how) => {
    const pod = await mourner(lane);
    const { met } = commands.loseNext('commitTransaction', how);
    await rounds(pod);
    await met;
    await expectMourned(pod);
    expect(calls).toBe(2);
  });

  it.each(LANES)('on the %s lane a hook whose own write breaks is called again', async (lane) => {
    const pod = await mourner(lane);
    const { met } = commands.loseNext('insert', 'reset', 'mourned');
    await rounds(pod);
    await met;
    await expectMourned(pod);
    expect(calls).toBe(2);
  });

  it('a hook that swallows a conflict is called again, by the driver', async () => {
    const pod = await mourner('long', async ({ connection }) => {
      if (calls === 1) await inTransaction(connection, () => Promise.reject(conflict())).catch(() => undefined);
    });
    await rounds(pod);
    await expectMourned(pod);
    expect(calls).toBe(2);
  });

  describe('and a hook that calls a service which resets its connections', () => {
    let service: net.Server;
    beforeEach(async () => {
      service = net
        .createServer((socket) => socket.once('data', () => socket.resetAndDestroy()))
        .listen(0, '127.0.0.1');
      await once(service, 'listening');
    });
    afterEach(() => void service.close());

    /** Rejects as a connection to the database may: `read ECONNRESET`. */
    const call = (): Promise<unknown> =>
      once(http.get({ host: '127.0.0.1', port: (service.address() as net.AddressInfo).port }), 'response');

    it.each<[how: string, hook: (pod: TestPod) => Promise<unknown>]>([
      ['throws that', call],
      ['swallows it, inside of its transaction', ({ connection }) => inTransaction(connection, call).catch(() => 0)],
    ])('%s: its row goes DEAD without it, after 20 calls', async (_, hook) => {
      const pod = await mourner('long', hook);
      await rounds(pod);
      expect(await pod.jobs.find().toArray()).toMatchObject([{ status: 'DEAD' }]);
      expect(await mourned(pod)).toBe(0);
      expect(pod.eventsOf('on_dead_failed')).toMatchObject([{ error: { code: 'ECONNRESET', syscall: 'read' } }]);
      expect(calls).toBe(20);
    });
  });
});
