/** Commands of a heartbeat that was given up, which the database carries out all the same, later (invariant 5). */
import { afterAll, afterEach, expect, it } from '@jest/globals';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const database = new TestDatabase();
afterEach(() => database.reset());
afterAll(() => database.drop());

interface HeldBack {
  readonly sent: Promise<void>;
  carryOut(): Promise<unknown>;
}

/** The next update of partitions never answers. */
function holdBack({ collections: { partitions } }: TestPod): HeldBack {
  const updateMany = partitions.updateMany.bind(partitions);
  let late: (() => Promise<unknown>) | undefined;
  const sent = new Promise<void>((resolve) => {
    partitions.updateMany = (...args) => {
      partitions.updateMany = updateMany;
      late = () => updateMany(...args);
      resolve();
      return new Promise(() => undefined);
    };
  });
  return { sent, carryOut: () => late!() };
}

const untilOf = async (pod: TestPod): Promise<number[]> =>
  (await pod.collections.partitions.find().toArray()).map(({ lease_until }) => lease_until?.getTime() ?? 0);

/** A heartbeat that waits for its answer for so long that it gives up. */
async function givenUp(pod: TestPod, clock: FakeClock): Promise<HeldBack> {
  const command = holdBack(pod);
  const beat = pod.leases.heartbeat();
  const rejected = expect(beat).rejects.toThrow('no answer to a heartbeat');
  await command.sent;
  clock.advance(10_000);
  await rejected;
  return command;
}

it('a renewal that is carried out late shortens no lease that was renewed since', async () => {
  const clock = new FakeClock();
  const pod = await database.pod({}, [], clock);
  await pod.leases.heartbeat();
  const renewal = await givenUp(pod, clock);
  await pod.leases.heartbeat();
  const until = await untilOf(pod);
  await renewal.carryOut();
  expect(await untilOf(pod)).toEqual(until);
  expect(until).toEqual(Array(4).fill(clock.now().getTime() + 30_000));
});

it('what a late take wins is served only when its lease was renewed', async () => {
  const clock = new FakeClock();
  const pod = await database.pod({}, [], clock);
  const take = await givenUp(pod, clock);
  // Between the renewal of the next heartbeat and its look.
  const { workers } = pod.collections;
  const updateOne = workers.updateOne.bind(workers);
  workers.updateOne = async (...sent) => {
    workers.updateOne = updateOne;
    await take.carryOut();
    return updateOne(...sent);
  };
  await pod.leases.heartbeat();
  const trusted = pod.leases.readable().map(({ deadline }) => deadline - clock.monotonic());
  const until = await untilOf(pod);
  for (const ms of trusted) expect(ms).toBeLessThanOrEqual(Math.min(...until) - clock.now().getTime());
  await pod.leases.heartbeat();
  expect(pod.leases.readable()).toHaveLength(4);
  expect(await untilOf(pod)).toEqual(Array(4).fill(clock.now().getTime() + 30_000));
});

it('what a take wins while the pod leaves is given back', async () => {
  const pod = await database.pod();
  const { partitions } = pod.collections;
  const updateMany = partitions.updateMany.bind(partitions);
  partitions.updateMany = async (...sent) => {
    partitions.updateMany = updateMany;
    const answer = await updateMany(...sent);
    await pod.leases.leave();
    return answer;
  };
  await pod.leases.heartbeat();
  expect(await partitions.countDocuments({ owner: null })).toBe(4);
  expect(pod.leases.readable()).toEqual([]);
});
