/**
 * Commands that the driver never answers (docs/decisions/0016): whatever waits for one gives it up, treats it as one whose
 * reply was lost, and goes on.
 */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose, { type Connection, type mongo } from 'mongoose';
import { engineDatabase } from '../../src/common/utils/engine_database.js';
import { CommitUnknownError, inTransaction, NoAnswerError } from '../../src/index.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { LostCommands } from '../support/lost_commands.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:work';
/** Real time, which only a lost command waits for. */
const MS = 1_500;

describe('a command that nothing answers', () => {
  const db = new TestDatabase();
  let lost: LostCommands;
  let sent: unknown[];
  beforeEach(() => {
    lost = new LostCommands();
    sent = [];
  });
  afterEach(async () => {
    lost.stop();
    await db.reset();
  });
  afterAll(() => db.drop());

  async function podOf(options: Partial<JobTargetOptions> = {}): Promise<TestPod> {
    const handler: JobTargetOptions['handler'] = async ({ payload }) => void sent.push(payload);
    const target: JobTargetOptions = { name: T, lane: 'fast', delivery_mode: 'at_most_once', handler, ...options };
    const pod = await db.pod({ partitions: 1, command_timeout_ms: MS }, [target]);
    await pod.leases.heartbeat();
    return pod;
  }

  const failures = (pod: TestPod): unknown[] => pod.eventsOf('round_failed').map(({ error }) => error);

  it.each([
    ['the probe', 'find', 'order_key'],
    ['the mark', 'update', 'inflight'],
  ])('fast lane, %s: the round fails, the next one sends the row, once', async (_, command, field) => {
    const pod = await podOf();
    await pod.sideEffect.enqueue(T, 1, { key: 'k' });
    const { met } = lost.loseNext(command, 'silent', field);
    await pod.lane.runOnce();
    await met;
    expect(failures(pod)).toEqual([expect.any(NoAnswerError)]);
    expect(sent).toEqual([]);
    await pod.drain();
    expect(sent).toEqual([1]);
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('fast lane, the outcome: it is kept and written before anything else, and the row is sent once', async () => {
    const pod = await podOf();
    await pod.sideEffect.enqueue(T, 1);
    const { met } = lost.loseNext('delete', 'silent', 'jobs');
    await pod.lane.runOnce();
    await met;
    expect(pod.eventsOf('outcome_kept')).toMatchObject([{ error: expect.any(NoAnswerError) as unknown }]);
    await pod.drain();
    expect(sent).toEqual([1]);
    expect(await pod.jobs.countDocuments()).toBe(0);
  });

  it('long lane, the claim: it was never made, and the next round makes it', async () => {
    const pod = await podOf({ lane: 'long' });
    await pod.sideEffect.enqueue(T, 1);
    const { met } = lost.loseNext('update', 'silent', 'claim_token');
    await expect(pod.longLane.runOnce()).rejects.toThrow(NoAnswerError);
    await met;
    await pod.drain();
    expect(sent).toEqual([1]);
  });

  it('an enqueue: its caller is told, and nothing of the transaction stands', async () => {
    const pod = await podOf();
    const { met } = lost.loseNext('insert', 'silent', 'jobs');
    const business = inTransaction(pod.connection, (tx) => pod.sideEffect.enqueue(T, 1, {}, tx));
    await expect(business).rejects.toThrow(NoAnswerError);
    await met;
    expect(await pod.jobs.countDocuments()).toBe(0);
    await inTransaction(pod.connection, (tx) => pod.sideEffect.enqueue(T, 2, {}, tx));
    expect(await pod.jobs.countDocuments()).toBe(1);
  });

  it("the commit of a transaction of the engine's own", async () => {
    const pod = await podOf();
    const { met } = lost.loseNext('commitTransaction');
    const { inTransaction: ownTransaction, counters } = pod.collections;
    const work = ownTransaction(({ session }) => counters.insertOne({ _id: 'c', seq: 1 }, { session }));
    await expect(work).rejects.toThrow(CommitUnknownError);
    await met;
  });

  it('a command on a cursor that is built up in steps', async () => {
    const pod = await podOf();
    const { met } = lost.loseNext('find', 'silent', 'job_targets');
    const rows = pod.collections.targets.find().sort({ _id: 1 }).limit(5);
    await expect(rows.toArray()).rejects.toThrow('job_targets.find.toArray: no answer of the database within 1500 ms');
    await met;
  });

  it('the time of the database', async () => {
    const pod = await podOf();
    const { met } = lost.loseNext('hello', 'silent', 'admin');
    await expect(pod.collections.databaseTime()).rejects.toThrow(NoAnswerError);
    await met;
  });

  describe('that was given up', () => {
    const opened: Connection[] = [];
    afterEach(async () => {
      for (const connection of opened.splice(0)) await connection.close(true);
    });

    async function open(maxPoolSize: number): Promise<{ connection: Connection; rows: mongo.Collection }> {
      const connection = await mongoose.createConnection(db.uri, { dbName: db.name, maxPoolSize }).asPromise();
      opened.push(connection);
      await connection.createCollection('rows').catch(() => undefined);
      const { collection } = await engineDatabase(connection, 500);
      return { connection, rows: collection('rows') };
    }

    it.each(['find', 'update', 'insert', 'delete', 'findAndModify', 'aggregate'])(
      'gives its connection back (%s)',
      async (command) => {
        const { connection, rows } = await open(1);
        const asked: Record<string, () => Promise<unknown>> = {
          find: () => rows.find().toArray(),
          update: () => rows.bulkWrite([{ updateOne: { filter: { a: 1 }, update: { $set: { b: 1 } } } }]),
          insert: () => rows.insertMany([{ a: 1 }]),
          delete: () => rows.deleteMany({ a: 1 }),
          findAndModify: () => rows.findOneAndUpdate({ a: 1 }, { $set: { b: 1 } }),
          aggregate: () => rows.countDocuments(),
        };
        const { met } = lost.loseNext(command, 'silent', 'rows');
        await expect(asked[command]!()).rejects.toThrow(NoAnswerError);
        await met;
        await connection.db!.collection('rows').findOne(); // waits for as long as it takes
      },
    );

    it('before it was sent is not sent any more: it would escape the transaction that was aborted meanwhile', async () => {
      const { connection, rows } = await open(1);
      const { met, release } = lost.loseNext('find', 'hold', 'others');
      const first = connection.db!.collection('others').findOne();
      await met;
      const session = await connection.startSession();
      session.startTransaction();
      await expect(rows.insertOne({ a: 1 }, { session })).rejects.toThrow(NoAnswerError);
      await session.abortTransaction();
      release();
      await first;
      expect(await connection.db!.collection('rows').countDocuments()).toBe(0);
      await session.endSession();
    });
  });
});
