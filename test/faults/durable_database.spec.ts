import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose, { type Connection } from 'mongoose';
import { DurableDatabase } from './bench/durable_database.js';

const reason = DurableDatabase.unavailable();

describe('the database server of a scenario', () => {
  if (reason) {
    it(`cannot be tried here: ${reason}`, () => {});
    return;
  }
  let server: DurableDatabase;
  let client: Connection;

  beforeAll(async () => {
    server = await DurableDatabase.open();
    client = await mongoose.createConnection(server.uri, { dbName: 't', heartbeatFrequencyMS: 500 }).asPromise();
    await client.createCollection('rows');
  }, 240_000);
  afterAll(async () => {
    await client?.close(true);
    await server?.close();
  });

  it.each(['dies', 'stays'] as const)(
    'has everything that was answered before it was killed; its gateway %s',
    async (gateway) => {
      const rows = client.collection<{ _id: string }>('rows');
      const answered: string[] = [];
      let killed = false;
      const writer = async (name: string): Promise<void> => {
        for (let n = 0; !killed; n++) {
          const _id = `${gateway} ${name} ${n}`;
          await rows.insertOne({ _id }).then(
            () => answered.push(_id),
            () => undefined,
          );
        }
      };
      const writers = ['a', 'b', 'c'].map(writer);
      while (answered.length < 100) await new Promise((resolve) => setImmediate(resolve));
      await server.kill(gateway);
      killed = true;
      await server.start();
      await Promise.all(writers);
      const there = new Set((await rows.find().toArray()).map(({ _id }) => _id));
      expect(answered.filter((id) => !there.has(id))).toEqual([]);
    },
  );
});
