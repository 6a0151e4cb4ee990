// The protocol itself, byte by byte, as no driver sends it.
import { afterEach, beforeEach, expect, it } from '@jest/globals';
import { readFile } from 'node:fs/promises';
import { MessageReader } from '../../../scripts/services/documentdb/wire.protocol.js';
import { describeGateway } from './support/harness.js';
import { opMsg, opQuery, RawClient, withHeader } from './support/raw_client.js';

describeGateway('wire protocol', (harness) => {
  let client: RawClient;
  beforeEach(async () => {
    client = await RawClient.connect(harness.gateway.port);
  });
  afterEach(() => client.close());

  it('a message cut anywhere, and several in one piece, are read as sent', () => {
    const messages = [opMsg({ ping: 1 }), opMsg({ hello: 1, text: 'x'.repeat(300) }), opMsg({ ping: 1 })];
    const stream = Buffer.concat(messages);
    for (let size = 1; size <= stream.length; size++) {
      const reader = new MessageReader();
      const read: Buffer[] = [];
      for (let at = 0; at < stream.length; at += size) read.push(...reader.push(stream.subarray(at, at + size)));
      expect(read).toEqual(messages);
    }
  });

  it('commands sent at once are answered in their order', async () => {
    client.write(
      Buffer.concat([
        opMsg({ ping: 1, $db: 'admin' }),
        opMsg({ nonsense: 1, $db: 'admin' }),
        opMsg({ hello: 1, $db: 'admin' }),
      ]),
    );
    expect(await client.reply()).toEqual({ ok: 1 });
    expect(await client.reply()).toMatchObject({ code: 59 });
    expect(await client.reply()).toMatchObject({ isWritablePrimary: true });
  });

  it('a checksum is accepted, a command that wants no answer gets none', async () => {
    const $db = harness.db.databaseName;
    client.write(opMsg({ ping: 1, $db }, { flags: 1 }));
    expect(await client.reply()).toEqual({ ok: 1 });
    const silent = opMsg(
      { insert: 'silent', writeConcern: { w: 0 }, $db },
      { flags: 2, sequence: ['documents', [{ _id: 1 }, { _id: 2 }]] },
    );
    client.write(silent);
    expect(await client.command({ ping: 1, $db })).toEqual({ ok: 1 });
    expect(await harness.db.collection('silent').countDocuments()).toBe(2);
  });

  it('the handshake of a driver that knows nothing yet is answered in its own way', async () => {
    client.write(opQuery({ isMaster: 1, helloOk: true }));
    const message = await client.message();
    expect(message.readInt32LE(12)).toBe(1);
    expect(message.readInt32LE(8)).toBe(77);
  });

  it.each([
    ['an unknown opcode', withHeader(2012, Buffer.alloc(20))],
    ['an impossible size', withHeader(2013, Buffer.alloc(20), 7)],
    ['a required flag nobody knows', opMsg({ ping: 1 }, { flags: 4 })],
    ['a document that ends early', withHeader(2013, Buffer.from([0, 0, 0, 0, 0, 200, 0, 0, 0, 1]))],
  ])('%s closes the connection, and only that one', async (_, bytes) => {
    client.write(bytes);
    await client.closed;
    expect(await harness.db.command({ ping: 1 })).toEqual({ ok: 1 });
  });

  it('listens on loopback only', async () => {
    const own = `:${harness.gateway.port.toString(16).toUpperCase().padStart(4, '0')}`;
    const listening = (await Promise.all(['/proc/net/tcp', '/proc/net/tcp6'].map((file) => readFile(file, 'utf8'))))
      .join('\n')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter(([, local, , state]) => local?.endsWith(own) && state === '0A');
    expect(listening.map(([, local]) => local)).toEqual([`0100007F${own}`]);
  });
});
