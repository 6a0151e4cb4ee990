/** What a pod knows of its partitions when an answer of the database is lost, and what its heartbeats ask. */
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { DatabaseClock } from '../../src/common/ports/clock.js';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const database = new TestDatabase();
afterEach(() => database.reset());
afterAll(() => database.drop());

/** The n-th update of partitions is carried out, and its answer lost. */
function loseAnswer({ collections: { partitions } }: TestPod, n: number): void {
  const send = partitions.updateMany.bind(partitions);
  let left = n;
  partitions.updateMany = async (...sent) => {
    const answer = await send(...sent);
    if (--left === 0) throw new Error('the connection is gone');
    return answer;
  };
}

/** The stop begins between the update of the first take and its answer. */
function leaveAtFirstTake(pod: TestPod): void {
  const { partitions } = pod.collections;
  const updateMany = partitions.updateMany.bind(partitions);
  partitions.updateMany = async (...sent) => {
    partitions.updateMany = updateMany;
    const answer = await updateMany(...sent);
    await pod.leases.leave();
    return answer;
  };
}

const owned = (pod: TestPod): number[] =>
  pod.leases
    .readable()
    .map(({ partition }) => partition)
    .sort((a, b) => a - b);

describe('a take whose answer was lost', () => {
  it('is found by the next heartbeat, under the token of the take', async () => {
    const pod = await database.pod();
    loseAnswer(pod, 1);
    await expect(pod.leases.heartbeat()).rejects.toThrow('the connection is gone');
    expect(owned(pod)).toEqual([]);
    const taken = await pod.collections.partitions.find({}).toArray();
    expect(new Set(taken.map(({ owner }) => owner)).size).toBe(1);
    await pod.leases.heartbeat();
    expect(owned(pod)).toEqual([0, 1, 2, 3]);
    const kept = await pod.collections.partitions.find({}).toArray();
    expect(kept.map(({ lease_token }) => lease_token)).toEqual(taken.map(({ lease_token }) => lease_token));
  });

  it('is found beside partitions that the pod holds', async () => {
    const first = await database.pod();
    await first.leases.heartbeat();
    const second = await database.pod();
    for (const pod of [second, first, second, first]) await pod.leases.heartbeat();
    expect([...owned(first), ...owned(second)].sort((a, b) => a - b)).toEqual([0, 1, 2, 3]);
    await second.close();
    // The renewal goes through, the take behind it does not.
    loseAnswer(first, 2);
    await expect(first.leases.heartbeat()).rejects.toThrow('the connection is gone');
    expect(owned(first)).toHaveLength(2);
    await first.leases.heartbeat();
    expect(owned(first)).toEqual([0, 1, 2, 3]);
  });
});

it('what a take wins while the pod leaves is given back', async () => {
  const pod = await database.pod();
  leaveAtFirstTake(pod);
  await pod.leases.heartbeat();
  expect(await pod.collections.partitions.countDocuments({ owner: null })).toBe(4);
  expect(owned(pod)).toEqual([]);
});

describe('a heartbeat', () => {
  it('asks for free partitions only while its share is not full', async () => {
    const pod = await database.pod();
    const finds = async (): Promise<number> => {
      const names = await pod.commandsOf(() => pod.leases.heartbeat());
      return names.filter((name) => name === 'find').length;
    };
    // Live pods and free partitions, what was won; then live pods and what is its own.
    expect(await finds()).toBe(3);
    expect(await finds()).toBe(2);
  });

  it('names its partitions to the database, so that those of others cost it nothing', async () => {
    const pod = await database.pod();
    await pod.leases.heartbeat();
    const filters: unknown[] = [];
    const client = pod.connection.getClient();
    client.on('commandStarted', ({ command }) => {
      if (command['find'] === 'job_partitions') filters.push(command['filter']);
      if (command['update'] === 'job_partitions') filters.push(command['updates'][0].q);
    });
    await pod.leases.heartbeat();
    expect(filters).toHaveLength(2);
    for (const filter of filters) expect(filter).toMatchObject({ partition: { $in: [0, 1, 2, 3] } });
  });
});

describe('a pod that stalls before it reads the time', () => {
  it('trusts no lease that is over for the other pods', async () => {
    const time = new FakeClock();
    let stall_ms = 0;
    const ask = (): Promise<Date> => {
      const answer = time.now();
      time.advance(stall_ms);
      stall_ms = 0;
      return Promise.resolve(answer);
    };
    const clock = new DatabaseClock(ask, { wall: () => time.now().getTime(), monotonic: () => time.monotonic() });
    await clock.sync();
    const stalled = await database.pod({}, [], clock);
    stall_ms = 50_000;
    await stalled.leases.heartbeat();
    expect(owned(stalled)).toEqual([0, 1, 2, 3]);
    time.advance(10_000);
    const other = await database.pod({}, [], time);
    await other.leases.heartbeat();
    const trusted = stalled.leases.readable().filter((partition) => stalled.leases.mayStart(partition, 0));
    expect(trusted).toHaveLength(4);
    expect(owned(other)).toEqual([]);
  });
});

describe('renewals', () => {
  const T = 'test:send';
  const untilOf = async (pod: TestPod): Promise<(Date | null)[]> =>
    (await pod.collections.partitions.find({}).toArray()).map(({ lease_until }) => lease_until);

  function held(): { promise: Promise<void>; end: () => void } {
    let end = (): void => undefined;
    const promise = new Promise<void>((resolve) => void (end = resolve));
    return { promise, end: () => end() };
  }

  it('go on while the on_dead of a takeover hangs, and the partition opens when it has ended', async () => {
    const clock = new FakeClock();
    const [inside, hook] = [held(), held()];
    const handler = (): Promise<never> => {
      inside.end();
      return new Promise(() => undefined);
    };
    const first = await database.pod({ partitions: 2 }, [{ name: T, lane: 'fast', handler }], clock);
    await first.leases.heartbeat();
    await first.sideEffect.enqueue(T, 1);
    void first.lane.runOnce();
    await inside.promise;
    await first.die();
    clock.advance(30_001);
    const on_dead = (): Promise<void> => hook.promise;
    const pod = await database.pod({ partitions: 2 }, [{ name: T, lane: 'fast', handler, on_dead }], clock);
    const beat = async (): Promise<void> => {
      const beating = pod.leases.heartbeat();
      await clock.armed(1_000);
      clock.advance(1_000);
      await beating;
    };
    await beat();
    expect(owned(pod)).toHaveLength(1);
    clock.advance(9_000);
    const asked = clock.now().getTime();
    await beat();
    expect(await untilOf(pod)).toEqual([new Date(asked + 30_000), new Date(asked + 30_000)]);
    hook.end();
    await pod.leases.heartbeat();
    expect(owned(pod)).toEqual([0, 1]);
    expect(await pod.jobs.findOne({})).toMatchObject({ status: 'DEAD' });
    const told = pod.eventsOf('partitions_taken').flatMap(({ partitions }) => partitions);
    expect(told.sort((a, b) => a - b)).toEqual([0, 1]);
  });

  it('go on behind a heartbeat whose command never comes back', async () => {
    const clock = new FakeClock();
    const pod = await database.pod({}, [], clock);
    await pod.leases.heartbeat();
    const inside = held();
    const { workers } = pod.collections;
    const updateOne = workers.updateOne.bind(workers);
    workers.updateOne = () => {
      workers.updateOne = updateOne;
      inside.end();
      return new Promise(() => undefined);
    };
    const hanging = pod.leases.heartbeat();
    await inside.promise;
    clock.advance(10_000);
    await expect(hanging).rejects.toThrow('no answer to a heartbeat within 10000 ms');
    await pod.leases.heartbeat();
    const until = new Date(clock.now().getTime() + 30_000);
    expect(await untilOf(pod)).toEqual([until, until, until, until]);
    expect(owned(pod)).toEqual([0, 1, 2, 3]);
  });

  it('keep what they found of a take whose answer comes after its heartbeat was given up', async () => {
    const clock = new FakeClock();
    const pod = await database.pod({}, [], clock);
    const [inside, answer] = [held(), held()];
    const { partitions } = pod.collections;
    const updateMany = partitions.updateMany.bind(partitions);
    partitions.updateMany = async (...sent) => {
      partitions.updateMany = updateMany;
      const result = await updateMany(...sent);
      inside.end();
      await answer.promise;
      return result;
    };
    const hanging = pod.leases.heartbeat();
    await inside.promise;
    clock.advance(10_000);
    await expect(hanging).rejects.toThrow('no answer to a heartbeat');
    await pod.leases.heartbeat();
    const found = pod.leases.readable();
    expect(found).toHaveLength(4);
    answer.end();
    for (let beat = 0; beat < 3; beat++) await pod.leases.heartbeat();
    for (const each of found) expect(pod.leases.get(each.partition)).toBe(each);
  });
});

describe('marks that a dead owner left', () => {
  const target: JobTargetOptions = { name: 'test:send', lane: 'fast', handler: () => Promise.resolve() };

  /** Two partitions, each with a mark under another's term, and a pod that is about to take them. */
  async function left(): Promise<TestPod> {
    const pod = await database.pod({ partitions: 2 }, [target]);
    const mark = { target: 'test:send', mode: 'at_most_once' as const, ids: [], at: pod.now() };
    for (const partition of [0, 1]) {
      const inflight = [{ ...mark, token: `mark ${partition}` }];
      await pod.collections.partitions.updateOne({ partition }, { $set: { inflight } });
    }
    return pod;
  }

  /** What the first removal of judged marks meets. */
  function atFirstPull({ collections: { partitions } }: TestPod, meet: (partition: number) => Promise<void>): void {
    const updateOne = partitions.updateOne.bind(partitions);
    partitions.updateOne = async (...sent) => {
      if (!('$pull' in sent[1])) return updateOne(...sent);
      partitions.updateOne = updateOne;
      await meet(sent[0]['partition'] as number);
      return updateOne(...sent);
    };
  }

  it('close no other partition when the judgement of one fails, and are judged with the next heartbeat', async () => {
    const pod = await left();
    atFirstPull(pod, () => Promise.reject(new Error('the connection is gone')));
    await expect(pod.leases.heartbeat()).rejects.toThrow('the connection is gone');
    expect(owned(pod)).toHaveLength(1);
    expect(pod.eventsOf('partitions_taken')).toHaveLength(1);
    await pod.leases.heartbeat();
    expect(owned(pod)).toEqual([0, 1]);
    expect(await pod.collections.partitions.countDocuments({ inflight: [] })).toBe(2);
  });

  it('are judged by a pod that leaves, before it gives their partitions back', async () => {
    const pod = await left();
    atFirstPull(pod, () => Promise.reject(new Error('the connection is gone')));
    await expect(pod.leases.heartbeat()).rejects.toThrow('the connection is gone');
    await pod.leases.leave();
    expect(await pod.collections.partitions.countDocuments({ owner: null, inflight: [] })).toBe(2);
  });

  it('are judged by a pod that takes them while it leaves', async () => {
    const pod = await left();
    leaveAtFirstTake(pod);
    await pod.leases.heartbeat();
    expect(await pod.collections.partitions.countDocuments({ owner: null, inflight: [] })).toBe(2);
  });

  it('are given back by a pod that leaves and cannot judge them, for the next owner to judge', async () => {
    const pod = await left();
    for (const leaves of [() => pod.leases.heartbeat(), () => pod.leases.leave()]) {
      atFirstPull(pod, () => Promise.reject(new Error('the connection is gone')));
      await expect(leaves()).rejects.toThrow('the connection is gone');
    }
    expect(await pod.collections.partitions.countDocuments({ owner: null })).toBe(2);
    expect(await pod.collections.partitions.countDocuments({ inflight: [] })).toBe(1);
  });

  it('open no partition that somebody else took while they were judged', async () => {
    const pod = await left();
    let taken: number | undefined;
    atFirstPull(pod, async (partition) => {
      taken = partition;
      await pod.collections.partitions.updateMany({ partition }, { $set: { lease_token: 'of another term' } });
    });
    await pod.leases.heartbeat();
    expect(owned(pod)).toEqual([0, 1].filter((partition) => partition !== taken));
    expect(pod.eventsOf('partitions_lost')).toEqual([{ type: 'partitions_lost', partitions: [taken] }]);
    expect(await pod.collections.partitions.countDocuments({ partition: taken, inflight: [] })).toBe(0);
  });
});
