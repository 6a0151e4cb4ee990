/**
 * One run per slot over four pods that are real processes, with clocks that disagree: 50 hourly schedules over 10 hours
 * that pass in about half a minute. Each hour waits for the slots of the one before, so a slow machine needs longer and
 * misses nothing; within an hour the pods race.
 */
import { afterAll, describe, expect, it } from '@jest/globals';
import mongoose from 'mongoose';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { ChildOrders, FromChild, LedgerEntry, ToChild } from '../support/schedule_child.js';
import { TestDatabase } from '../support/pod.js';

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));
const CHILD = fileURLToPath(new URL('../support/schedule_child.ts', import.meta.url));
const CODES = 50;
const HOURS = 10;
const SPEED = 1_200;
/** Far enough from the first slots that no clock reaches them before the first lap. */
const ORIGIN = Date.UTC(2030, 0, 1, 0, 58);
const SKEWS_MS = [0, 20_000, -20_000, 45_000];
/** Four processes that compile and boot on a busy machine take their time; nothing of the test depends on it. */
const BOOT_MS = 240_000;
const DEADLINE_MS = 300_000;
const STOP_MS = 60_000;

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

const codeOf = (index: number): string => `s${String(index).padStart(2, '0')}`;
const slotName = (hour: number, index: number): string =>
  `${codeOf(index)} ${new Date(Date.UTC(2030, 0, 1, hour, index)).toISOString()}`;

interface Pod {
  readonly child: ChildProcess;
  readonly exited: Promise<unknown>;
}

describe('four pods as processes', () => {
  const db = new TestDatabase();
  const pods: Pod[] = [];
  afterAll(async () => {
    for (const { child } of pods) child.kill('SIGKILL');
    await Promise.all(pods.map(({ exited }) => exited));
    await db.drop();
  });

  function start(index: number, onMessage: (message: FromChild) => void): Pod {
    const skew = SKEWS_MS[index]!;
    const orders: ChildOrders = {
      uri: db.uri,
      db: db.name,
      name: `pod${index}`,
      origin: ORIGIN,
      speed: SPEED,
      skew,
      schedules: Array.from({ length: CODES }, (_, minute) => ({ code: codeOf(minute), cron: `${minute} * * * *` })),
    };
    const child = fork(CHILD, [JSON.stringify(orders)], { cwd: CHECKOUT, execArgv: ['--import', 'tsx'] });
    child.on('message', onMessage);
    return { child, exited: once(child, 'exit') };
  }

  it(
    'run each of 500 slots exactly once',
    async () => {
      const hours = Array.from({ length: HOURS }, (_, hour) => hour + 1);
      const wanted = new Set(hours.flatMap((hour) => Array.from({ length: CODES }, (_, code) => slotName(hour, code))));
      expect(wanted.size).toBe(500);

      const left = new Set<string>();
      const failures: string[] = [];
      let lapDone = (): void => undefined;
      const started = SKEWS_MS.map(
        (_, index) =>
          new Promise<void>((ready, died) => {
            const pod = start(index, (message) => {
              if ('ready' in message) ready();
              else if ('stopped' in message) failures.push(...message.stopped);
              else if (left.delete(message.ran) && left.size === 0) lapDone();
            });
            pods.push(pod);
            void pod.exited.then(() => died(new Error(`pod${index} ended before it was ready`)));
          }),
      );
      await Promise.all(started);
      const tell = (message: ToChild): void => pods.forEach(({ child }) => child.send(message));
      const deadline = new Promise<void>((resolve) => setTimeout(resolve, DEADLINE_MS).unref());
      let inTime = true;
      void deadline.then(() => (inTime = false));
      for (let hour = 1; hour <= HOURS && inTime; hour++) {
        const done = new Promise<void>((resolve) => (lapDone = resolve));
        for (let index = 0; index < CODES; index++) left.add(slotName(hour, index));
        // Up to the 55th minute: whatever a clock's skew, the next hour's slots come with the next lap.
        tell({ at: Date.now(), from: (hour - 1) * HOUR, until: (hour - 1) * HOUR + 55 * MINUTE });
        await Promise.race([done, deadline]);
      }
      tell({ stop: true });
      await Promise.all(pods.map(({ exited }) => exited));

      const connection = await mongoose.createConnection(db.uri, { dbName: db.name }).asPromise();
      const entries = await connection.collection<LedgerEntry>('ledger').find().toArray();
      const skipped = await connection
        .collection('schedules')
        .find({ last_skipped_at: { $exists: true } })
        .toArray();
      const dead = await connection.collection('jobs').countDocuments({ status: 'DEAD' });
      await connection.close();

      const runs = new Map<string, number>();
      for (const { code, slot } of entries) runs.set(`${code} ${slot}`, (runs.get(`${code} ${slot}`) ?? 0) + 1);
      expect([...runs].filter(([, count]) => count > 1)).toEqual([]);
      expect(skipped.map(({ code, last_skipped_at }) => [code, last_skipped_at])).toEqual([]);
      expect([...wanted].filter((slot) => !runs.has(slot))).toEqual([]);
      expect(dead).toBe(0);
      // A tick that lost its race is no failure; nobody is to be woken by it.
      expect(failures).toEqual([]);
      // All pods took part: this was a race.
      expect(new Set(entries.map(({ pod }) => pod)).size).toBe(SKEWS_MS.length);
    },
    BOOT_MS + DEADLINE_MS + STOP_MS,
  );
});
