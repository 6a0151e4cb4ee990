import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import { setTimeout as wait } from 'node:timers/promises';
import { startChild, type Child } from '../support/child.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase } from '../support/pod.js';

const T = 'test:exclusive';
const CODES = ['a', 'b', 'c', 'd', 'e'];

describe('exclusive codes over processes', () => {
  const db = new TestDatabase();
  const children: Child[] = [];
  afterEach(async () => {
    await Promise.all(children.splice(0).map((child) => child.end('SIGKILL')));
    await db.reset();
  });
  afterAll(() => db.drop());

  it('4 pods and 2,000 rows of 5 codes: never two runs of a code at once, each row once', async () => {
    const target = { name: T, lane: 'long', exclusive: true, handler: async () => undefined } as const;
    // Due for the children, whose time is the database's.
    const pod = await db.pod({}, [target], new FakeClock(0));
    await pod.sideEffect.enqueueMany(
      Array.from({ length: 2000 }, (_, index) => ({ target: T, payload: index, code: CODES[index % 5]! })),
    );
    for (let index = 0; index < 4; index++) {
      children.push(startChild('test/support/exclusive_pod.ts', { MONGO_URI: db.uri, DB: db.name }));
    }
    await Promise.all(children.map((child) => child.said('ready')));

    // The rows are processed by other processes: looked at until they are gone, or the time is up.
    const until = Date.now() + 240_000;
    while ((await pod.jobs.countDocuments()) > 0 && Date.now() < until) {
      const running = await pod.jobs.find({ status: 'RUNNING' }, { projection: { code: 1 } }).toArray();
      expect(new Set(running.map((row) => row.code)).size).toBe(running.length);
      await wait(50);
    }

    expect(await pod.jobs.countDocuments()).toBe(0);
    const ledger = await pod.connection.collection('ledger').find().toArray();
    expect(ledger.filter((entry) => !entry['alone'])).toEqual([]);
    expect(new Set(ledger.map((entry) => entry['job'])).size).toBe(2000);
    expect(ledger).toHaveLength(2000);
    expect(new Set(ledger.map((entry) => entry['pod'])).size).toBeGreaterThan(1);
  }, 270_000);
});
