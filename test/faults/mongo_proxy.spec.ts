import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { MongoProxy, type Command } from './bench/mongo_proxy.js';

describe('the proxy in front of the database', () => {
  let proxy: MongoProxy;
  let through: Connection;
  let direct: Connection;

  beforeEach(async () => {
    const uri = process.env['MONGO_URI']!;
    const dbName = `t_${randomUUID().slice(0, 8)}`;
    proxy = await MongoProxy.open(Number(new URL(uri).port));
    const patience = { serverSelectionTimeoutMS: 2_000, socketTimeoutMS: 1_000, heartbeatFrequencyMS: 500 };
    through = await mongoose.createConnection(proxy.uri, { dbName, retryWrites: false, ...patience }).asPromise();
    direct = await mongoose.createConnection(uri, { dbName }).asPromise();
    await direct.createCollection('rows');
  });
  afterEach(async () => {
    await through.close(true);
    await direct.dropDatabase();
    await direct.close();
    await proxy.close();
  });

  it('loses the reply of the command that matches, which is carried out, and of no other', async () => {
    proxy.loseReplies({
      name: 'insert',
      matches: ({ name, collection }) => name === 'insert' && collection === 'rows',
    });
    await expect(through.collection('rows').insertOne({ a: 1 })).rejects.toThrow();
    expect(await direct.collection('rows').countDocuments()).toBe(1);
    await through.collection('rows').insertOne({ a: 2 });
    expect(await direct.collection('rows').countDocuments()).toBe(2);
    expect(proxy.lost).toEqual(['insert']);
  });

  it('looks into a command', async () => {
    proxy.loseReplies({ name: 'b', matches: (command) => command.name === 'insert' && command.holds('second') });
    await through.collection('rows').insertOne({ first: 1 });
    await expect(through.collection('rows').insertOne({ second: 1 })).rejects.toThrow();
    expect(proxy.lost).toEqual(['b']);
  });

  it('delivers late what was sent while it stalled, and never what was sent into a hole', async () => {
    const rows = through.collection('rows');
    await rows.insertOne({ warm: 1 });
    const arrived = new Promise<void>((resolve) => {
      const matches = ({ name }: Command): boolean => (name === 'insert' && resolve(), false);
      proxy.loseReplies({ name: 'none', matches });
    });
    proxy.become('stall');
    let answered = false;
    const stalled = rows.insertOne({ stalled: 1 }).then(() => void (answered = true));
    await arrived;
    // Many times as long as the insert would take that nobody holds up.
    for (let n = 0; n < 20; n++) expect(await direct.collection('rows').countDocuments({ stalled: 1 })).toBe(0);
    expect(answered).toBe(false);
    proxy.become('pass');
    await stalled;
    expect(await direct.collection('rows').countDocuments({ stalled: 1 })).toBe(1);
    proxy.become('hole');
    await expect(rows.insertOne({ lost: 1 })).rejects.toThrow();
    proxy.become('pass');
    expect(await direct.collection('rows').countDocuments({ lost: 1 })).toBe(0);
  });

  it('refuses, and lets through again', async () => {
    proxy.become('refuse');
    await expect(through.collection('rows').insertOne({ a: 1 })).rejects.toThrow();
    proxy.become('pass');
    await through.collection('rows').insertOne({ a: 1 });
    expect(await direct.collection('rows').countDocuments()).toBe(1);
  });

  it('moves the clock of the server', async () => {
    const day = 86_400_000;
    proxy.clockMs = day;
    const told = (await through.db!.command({ hello: 1 }))['localTime'] as Date;
    const real = (await direct.db!.command({ hello: 1 }))['localTime'] as Date;
    expect(Math.abs(told.getTime() - day - real.getTime())).toBeLessThan(60_000);
  });
});
