import { beforeEach, describe, expect, it } from '@jest/globals';
import { Types } from 'mongoose';
import { ReadAhead } from '../../src/jobs/lanes/read_ahead.js';
import type { DueRow } from '../../src/jobs/store/long_lane.store.js';
import { FakeClock } from '../support/fake_clock.js';

const T = 'test:long';

describe('candidates read ahead', () => {
  let clock: FakeClock;
  let ahead: ReadAhead;
  let reads: number;
  const row = { _id: new Types.ObjectId(), target: T, code: 'c', priority: 1, next_run_at: new Date(0) } as DueRow;
  const read = (): Promise<DueRow[]> => {
    reads++;
    return Promise.resolve([row]);
  };

  beforeEach(() => {
    clock = new FakeClock();
    ahead = new ReadAhead(clock);
    reads = 0;
  });

  it('are read once claims follow one another fast, and taken once', async () => {
    ahead.begin(T, 10, read);
    expect(await ahead.take(T, 10)).toBeUndefined();
    clock.advance(100);
    ahead.begin(T, 10, read);
    expect(reads).toBe(1);
    expect(await ahead.take(T, 10)).toEqual([row]);
    expect(await ahead.take(T, 10)).toBeUndefined();
  });

  it('are not read for a target whose claims are far apart', async () => {
    for (let claims = 0; claims < 3; claims++) {
      ahead.begin(T, 10, read);
      clock.advance(201);
    }
    expect(reads).toBe(0);
  });

  it('are thrown away when they are old, or fewer than are wanted', async () => {
    ahead.begin(T, 10, read);
    ahead.begin(T, 10, read);
    clock.advance(201);
    expect(await ahead.take(T, 10)).toBeUndefined();
    ahead.begin(T, 10, read);
    ahead.begin(T, 10, read);
    expect(await ahead.take(T, 11)).toBeUndefined();
  });

  it('are nothing when their read failed', async () => {
    ahead.begin(T, 10, read);
    ahead.begin(T, 10, () => Promise.reject(new Error('gone')));
    expect(await ahead.take(T, 10)).toBeUndefined();
  });
});
