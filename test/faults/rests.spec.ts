import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { Rests } from './bench/rests.js';

const SOON_MS = 5_000;
/** A look or two. */
const AT_ONCE_MS = 60;

describe('the look at targets that rest', () => {
  let connection: Connection;

  beforeAll(async () => {
    const dbName = `rests_${randomUUID().slice(0, 8)}`;
    connection = await mongoose.createConnection(process.env['MONGO_URI']!, { dbName }).asPromise();
  });
  afterAll(async () => {
    await connection.dropDatabase();
    await connection.close(true);
  });
  beforeEach(() => connection.collection('job_targets').deleteMany({}));

  async function rest(target: string, token: string, by = 'engine'): Promise<void> {
    const row = { state: 'paused', by, token };
    await connection
      .collection<{ _id: string }>('job_targets')
      .updateOne({ _id: target }, { $set: row }, { upsert: true });
  }

  it('counts what was found since it was opened, each finding once', async () => {
    await rest('a', 'old');
    const rests = await Rests.of({ connection }, ['a']);
    expect(await rests.found(1, AT_ONCE_MS)).toBe(false);
    await rest('a', 'first');
    expect(await rests.found(1, SOON_MS)).toBe(true);
    expect(await rests.found(1, AT_ONCE_MS)).toBe(false);
    await rest('a', 'second');
    expect(await rests.found(2, AT_ONCE_MS)).toBe(false);
  });

  it('waits for each of its targets, and for no pause of an admin', async () => {
    const rests = await Rests.of({ connection }, ['a', 'b']);
    await rest('a', '1');
    await rest('b', '2', 'admin');
    await rest('c', '3');
    expect(await rests.found(1, AT_ONCE_MS)).toBe(false);
    await rest('a', '4');
    await rest('b', '5');
    expect(await rests.found(1, SOON_MS)).toBe(true);
  });

  it('says when none of its targets rests any more', async () => {
    await rest('a', '1');
    await rest('b', '2');
    expect(await (await Rests.of({ connection }, ['a'])).over(AT_ONCE_MS)).toBe(false);
    expect(await (await Rests.of({ connection }, ['c'])).over(SOON_MS)).toBe(true);
  });
});
