import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { Types } from 'mongoose';
import { FinishedRows } from '../../src/jobs/lanes/finished_rows.js';
import { InflightMarks } from '../../src/jobs/lanes/inflight_marks.js';
import { JobOutcome } from '../../src/jobs/lanes/outcome.service.js';
import type { OwnedPartition } from '../../src/jobs/lanes/owned_partition.js';
import type { InflightMark, JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const target: JobTargetOptions = { name: T, lane: 'fast', handler: () => Promise.resolve() };

describe('writes that cells share', () => {
  const db = new TestDatabase();
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  async function owner(partitions = 8): Promise<{ pod: TestPod; clock: FakeClock; owned: OwnedPartition[] }> {
    const clock = new FakeClock();
    const pod = await db.pod({ partitions }, [target], clock);
    await pod.leases.heartbeat();
    return { pod, clock, owned: pod.leases.readable() };
  }

  const markOf = (clock: FakeClock, token: string): InflightMark => ({
    target: T,
    mode: 'at_most_once',
    token,
    ids: [new Types.ObjectId()],
    at: clock.now(),
  });

  const markAll = (pod: TestPod, clock: FakeClock, owned: OwnedPartition[]) => {
    const marks = pod.module.get(InflightMarks);
    return Promise.all(
      owned.map(({ term, rev }, index) =>
        marks.write({ term, rev, mark: markOf(clock, `token ${index}`), replaces: [] }),
      ),
    );
  };

  describe('marks', () => {
    it('of cells that start at the same time take one command, and each stands in its own partition', async () => {
      const { pod, clock, owned } = await owner();
      const commands = await pod.commandsOf(() => markAll(pod, clock, owned));
      expect(commands).toEqual(['update']);
      const rows = await pod.collections.partitions.find({}, { sort: { partition: 1 } }).toArray();
      expect(rows.map(({ inflight }) => inflight.map(({ token }) => token))).toEqual(
        owned.map((_, index) => [`token ${index}`]),
      );
    });

    it('are told one by one: one was lost, one overtaken by an admin, the others stand', async () => {
      const { pod, clock, owned } = await owner(4);
      const { partitions } = pod.collections;
      await partitions.updateOne({ partition: owned[1]!.partition }, { $set: { lease_token: 'of another term' } });
      await partitions.updateOne({ partition: owned[2]!.partition }, { $set: { rev: 7 } });
      expect(await markAll(pod, clock, owned)).toEqual([
        { result: 'marked' },
        { result: 'lost' },
        { result: 'changed', rev: 7 },
        { result: 'marked' },
      ]);
      const untouched = await partitions.find({ inflight: [] }).toArray();
      expect(new Set(untouched.map(({ partition }) => partition))).toEqual(
        new Set([owned[1]!.partition, owned[2]!.partition]),
      );
    });

    it('are told one by one: where another stands that is not to be replaced, and beside it the others are written', async () => {
      const { pod, clock, owned } = await owner(2);
      const { partitions } = pod.collections;
      const foreign = { ...markOf(clock, 'of somebody'), ids: [] };
      await partitions.updateOne({ partition: owned[0]!.partition }, { $set: { inflight: [foreign] } });
      expect(await markAll(pod, clock, owned)).toEqual([
        { result: 'occupied', by: 'of somebody' },
        { result: 'marked' },
      ]);
      expect(await partitions.findOne({ partition: owned[0]!.partition })).toMatchObject({ inflight: [foreign] });
    });

    it('are all lost once the leases ran out', async () => {
      const { pod, clock, owned } = await owner(2);
      clock.advance(30_001);
      expect(await markAll(pod, clock, owned)).toEqual([{ result: 'lost' }, { result: 'lost' }]);
    });

    it('keep those of other targets in the same partition', async () => {
      const { pod, clock, owned } = await owner(1);
      const marks = pod.module.get(InflightMarks);
      const { term, rev } = owned[0]!;
      const other = { ...markOf(clock, 'other'), target: 'test:other' };
      await Promise.all([
        marks.write({ term, rev, mark: markOf(clock, 'first'), replaces: [] }),
        marks.write({ term, rev, mark: other, replaces: [] }),
      ]);
      await marks.write({ term, rev, mark: markOf(clock, 'second'), replaces: ['first'] });
      const row = await pod.collections.partitions.findOne({});
      expect(row!.inflight.map(({ token }) => token).sort()).toEqual(['other', 'second']);
    });
  });

  describe('deletes', () => {
    async function stored(pod: TestPod, count: number): Promise<JobDoc[]> {
      await pod.sideEffect.enqueueMany(
        Array.from({ length: count }, (_, index) => ({ target: T, payload: index, key: `k${index}` })),
      );
      return pod.jobs.find({}).toArray();
    }

    it('of cells of one target that end at the same time take one command', async () => {
      const { pod } = await owner();
      const rows = await stored(pod, 8);
      const finished = pod.module.get(FinishedRows);
      const commands = await pod.commandsOf(() => Promise.all(rows.map((row) => finished.delete(T, [row]))));
      expect(commands).toEqual(['delete']);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('say once how many rows somebody else had ended, without a partition they cannot know', async () => {
      const { pod } = await owner();
      const rows = await stored(pod, 3);
      await pod.jobs.updateOne({ _id: rows[2]!._id }, { $set: { status: 'DEAD' } });
      const outcome = pod.module.get(JobOutcome);
      const registered = pod.module.get(JobTargetsRegistry).require(T);
      await Promise.all(
        rows.map((row) => {
          const scope = { target: T, partition: row.partition };
          return outcome.write(outcome.prepare(scope, registered, new Map([[row, { kind: 'success' }]]), { ms: 1 }));
        }),
      );
      expect(pod.eventsOf('outcome_lost')).toEqual([{ type: 'outcome_lost', target: T, count: 1 }]);
      expect(await pod.jobs.countDocuments({ status: 'DEAD' })).toBe(1);
    });
  });
});
