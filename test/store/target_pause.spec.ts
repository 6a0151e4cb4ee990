import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { inTransaction } from '../../src/common/utils/transaction.js';
import {
  extendPause,
  giveBackProbe,
  listTargets,
  openAfterProbe,
  pauseByAdmin,
  pauseByEngine,
  readTarget,
  resumeByAdmin,
  takeProbe,
  type Change,
  type Finding,
} from '../../src/jobs/store/target_pause.store.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const T = 'test:send';
const at = (seconds: number): Date => new Date(Date.UTC(2030, 0, 1) + seconds * 1000);
const finding = (token: string, seconds = 0): Finding => ({
  token,
  reason: 'connection refused',
  cause: 'row',
  now: at(seconds),
  probe_at: at(seconds + 30),
});

describe('the shared pause of a target', () => {
  const db = new TestDatabase();
  let pod: TestPod;
  beforeEach(async () => void (pod = await db.pod()));
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  const engine = (given: Finding): Promise<Change> => pauseByEngine(pod.collections, T, given);
  const row = (): ReturnType<typeof readTarget> => readTarget(pod.collections, T);
  const wish = (reason = 'maintenance', seconds = 0) => ({ target: T, actor: 'ann', reason, now: at(seconds) });
  const adminPause = (reason?: string, seconds?: number): Promise<Change> =>
    inTransaction(pod.connection, ({ session }) => pauseByAdmin(session, pod.collections, wish(reason, seconds)));
  const adminResume = (reason?: string, seconds?: number): Promise<Change> =>
    inTransaction(pod.connection, ({ session }) => resumeByAdmin(session, pod.collections, wish(reason, seconds)));
  const probe = (name: string, seconds: number): ReturnType<typeof takeProbe> =>
    takeProbe(pod.collections, T, { pod: name, now: at(seconds), until: at(seconds + 30) });

  it('of 20 pods that find a target down at once, one writes its finding', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => engine(finding(`t${index}`))));
    const winner = answers.indexOf('changed');
    expect(answers.filter((answer) => answer === 'changed')).toHaveLength(1);
    expect(await row()).toMatchObject({ state: 'paused', by: 'engine', token: `t${winner}`, probe_at: at(30) });
  });

  it('a finding that is written again after a lost reply changes nothing', async () => {
    expect(await engine(finding('a'))).toBe('changed');
    const before = await row();
    expect(await engine(finding('a'))).toBe('unchanged');
    expect(await row()).toEqual(before);
  });

  it('a target that was open again is paused anew, with nothing left of what an admin had said', async () => {
    await adminPause();
    await adminResume();
    expect(await engine(finding('a', 5))).toBe('changed');
    expect(await row()).toEqual({
      _id: T,
      state: 'paused',
      since: at(5),
      reason: 'connection refused',
      by: 'engine',
      token: 'a',
      cause: 'row',
      probe_at: at(35),
    });
  });

  it('the permit goes to one of 20 pods, when the probe is due and not before', async () => {
    await engine(finding('a'));
    expect(await probe('early', 29)).toBeUndefined();
    const answers = await Promise.all(Array.from({ length: 20 }, (_, index) => probe(`pod${index}`, 30)));
    expect(answers.filter(Boolean)).toHaveLength(1);
    expect(answers.find(Boolean)).toMatchObject({ token: 'a', probe_until: at(60) });
  });

  it('the permit of a pod that died goes to the next one when its time is over', async () => {
    await engine(finding('a'));
    await probe('dead', 30);
    expect(await probe('next', 59)).toBeUndefined();
    expect(await probe('next', 60)).toMatchObject({ probe_by: 'next', probe_until: at(90) });
  });

  it('there is no permit for a target that is open, unknown or paused by an admin', async () => {
    expect(await probe('p', 1_000)).toBeUndefined();
    await adminPause();
    expect(await probe('p', 1_000)).toBeUndefined();
    await adminResume();
    expect(await probe('p', 1_000)).toBeUndefined();
  });

  it('a permit that is given back goes to the next pod at once; one that ran out takes nothing from its successor', async () => {
    await engine(finding('a'));
    await probe('p', 30);
    const back = (pod_id: string, until: number): Promise<Change> =>
      giveBackProbe(pod.collections, T, { token: 'a', pod: pod_id, until: at(until) });
    expect(await back('p', 60)).toBe('changed');
    expect(await probe('q', 31)).toMatchObject({ probe_by: 'q' });
    expect(await back('p', 60)).toBe('unchanged');
    expect(await back('q', 60)).toBe('unchanged');
    expect(await row()).toMatchObject({ probe_by: 'q', probe_until: at(61) });
  });

  it('a probe that failed ends its permit and moves the next probe, but not the beginning of the pause', async () => {
    await engine(finding('a'));
    await probe('p', 30);
    expect(await extendPause(pod.collections, T, 'a', finding('b', 31))).toBe('changed');
    const now = await row();
    expect(now).toMatchObject({ since: at(0), token: 'b', probe_at: at(61) });
    expect(now).not.toHaveProperty('probe_by');
    expect(now).not.toHaveProperty('probe_until');
  });

  it('a probe that went through opens the target', async () => {
    await engine(finding('a'));
    await probe('p', 30);
    expect(await openAfterProbe(pod.collections, T, 'a', { reason: 'answered', now: at(31) })).toBe('changed');
    expect(await row()).toEqual({ _id: T, state: 'open', since: at(31), reason: 'answered', by: 'engine' });
  });

  it('a success of before the last finding opens nothing, and a failure of before it moves nothing', async () => {
    await engine(finding('a'));
    await extendPause(pod.collections, T, 'a', finding('b', 31));
    const before = await row();
    expect(await openAfterProbe(pod.collections, T, 'a', { reason: 'late', now: at(600) })).toBe('unchanged');
    expect(await extendPause(pod.collections, T, 'a', finding('c', 600))).toBe('unchanged');
    expect(await row()).toEqual(before);
  });

  it('an admin takes over a pause of the engine, and nothing of the engine touches the row from then on', async () => {
    await engine(finding('a'));
    await probe('p', 30);
    expect(await adminPause('maintenance', 40)).toBe('changed');
    const expected = { _id: T, state: 'paused', since: at(40), reason: 'maintenance', by: 'admin', actor: 'ann' };
    expect(await row()).toEqual(expected);
    expect(await openAfterProbe(pod.collections, T, 'a', { reason: 'late', now: at(41) })).toBe('unchanged');
    expect(await extendPause(pod.collections, T, 'a', finding('b', 41))).toBe('unchanged');
    expect(await engine(finding('c', 41))).toBe('unchanged');
    expect(await row()).toEqual(expected);
  });

  it('a second admin pause keeps the first reason; a resume of an open or unknown target changes nothing', async () => {
    expect(await adminResume()).toBe('unchanged');
    expect(await row()).toBeUndefined();
    expect(await adminPause('first')).toBe('changed');
    expect(await adminPause('second')).toBe('unchanged');
    expect(await row()).toMatchObject({ reason: 'first' });
    expect(await adminResume('done', 9)).toBe('changed');
    expect(await adminResume('again')).toBe('unchanged');
    expect(await row()).toEqual({ _id: T, state: 'open', since: at(9), reason: 'done', by: 'admin', actor: 'ann' });
  });

  it('an admin resumes a pause of the engine at once', async () => {
    await engine(finding('a'));
    expect(await adminResume('it is back', 3)).toBe('changed');
    expect(await row()).toEqual({
      _id: T,
      state: 'open',
      since: at(3),
      reason: 'it is back',
      by: 'admin',
      actor: 'ann',
    });
  });

  it('a pause whose transaction aborts leaves no trace', async () => {
    const aborted = inTransaction(pod.connection, async ({ session }) => {
      await pauseByAdmin(session, pod.collections, wish());
      throw new Error('audit failed');
    });
    await expect(aborted).rejects.toThrow('audit failed');
    expect(await listTargets(pod.collections)).toEqual([]);
  });

  it('of 8 admins that pause at once, one changes the row and nobody gets an error', async () => {
    const answers = await Promise.all(Array.from({ length: 8 }, (_, index) => adminPause(`reason ${index}`)));
    expect(answers.filter((answer) => answer === 'changed')).toHaveLength(1);
    expect((await row())?.reason).toBe(`reason ${answers.indexOf('changed')}`);
  });

  it('an admin and the engine that pause at the same moment end with the admin', async () => {
    for (let round = 0; round < 5; round++) {
      await pod.collections.targets.deleteMany({});
      const [admin] = await Promise.all([adminPause(), engine(finding('a'))]);
      expect(admin).toBe('changed');
      expect(await row()).toMatchObject({ by: 'admin', reason: 'maintenance' });
      expect(await row()).not.toHaveProperty('token');
    }
  });

  it('an admin whose first look finds no row, while the engine writes one, pauses it in the next attempt', async () => {
    const { targets } = pod.collections;
    const findOne = targets.findOne.bind(targets) as (...args: unknown[]) => Promise<never>;
    targets.findOne = (async (...args: unknown[]) => {
      const found = await findOne(...args);
      targets.findOne = findOne;
      await engine(finding('a'));
      return found;
    }) as typeof targets.findOne;
    expect(await adminPause()).toBe('changed');
    expect(await row()).toMatchObject({ by: 'admin' });
  });

  it('targets are listed by name', async () => {
    for (const name of ['b', 'a', 'c']) await pauseByEngine(pod.collections, name, finding(name));
    expect((await listTargets(pod.collections)).map((target) => target._id)).toEqual(['a', 'b', 'c']);
  });
});
