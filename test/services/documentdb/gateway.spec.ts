// The gateway as a whole: started, closed, and as a process.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { expect, it } from '@jest/globals';
import { startGateway } from '../../../scripts/services/documentdb/gateway.js';
import { describeGateway, failure, until } from './support/harness.js';
import { newSession, opMsg, RawClient } from './support/raw_client.js';

describeGateway('gateway', (harness) => {
  it('closing it stops what runs, rolls back what is open and resolves', async () => {
    const gateway = await startGateway({ port: 0, pgPort: harness.pgPort, connections: 5 });
    const $db = harness.db.databaseName;
    const [holder, waiter] = [await RawClient.connect(gateway.port), await RawClient.connect(gateway.port)];
    await holder.command({ insert: 'rows', documents: [{ _id: 1 }], $db });
    await holder.command({ find: 'rows', $db, ...newSession().numbered(1), autocommit: false, startTransaction: true });
    const update = (n: number) => ({ update: 'rows', updates: [{ q: { _id: 1 }, u: { $set: { n } } }], $db });
    await holder.command({ ...update(99), ...newSession().numbered(1), autocommit: false, startTransaction: true });
    waiter.write(opMsg(update(1)));
    await until(async () => (await harness.waiting()) === 1, 'the write waits');
    await gateway.close();
    await Promise.all([holder.closed, waiter.closed]);
    expect(await harness.open()).toBe(0);
    expect(await harness.waiting()).toBe(0);
    expect(await harness.db.collection('rows').countDocuments({ n: 99 })).toBe(0);
  });

  it('one that cannot reach PostgreSQL does not start', async () => {
    expect(await failure<Error>(startGateway({ port: 0, pgPort: 1 }))).toMatchObject({ code: 'ECONNREFUSED' });
  });

  it('three gateways that build the same indexes at once all succeed', async () => {
    const others = await Promise.all(
      [1, 2].map(() => startGateway({ port: 0, pgPort: harness.pgPort, connections: 10 })),
    );
    const clients = await Promise.all([harness.gateway, ...others].map(({ uri }) => harness.connect(uri)));
    await Promise.all(
      [...clients, ...clients].map((client) =>
        harness
          .of(client)
          .collection('shared')
          .createIndexes([
            { key: { key: 1 }, name: 'key', unique: true },
            { key: { state: 1 }, name: 'state' },
          ]),
      ),
    );
    expect(await harness.db.collection('shared').indexes()).toHaveLength(3);
    await Promise.all(clients.map((client) => client.close(true)));
    await Promise.all(others.map((gateway) => gateway.close()));
  });

  it('as a process it says where it listens, and ends cleanly on SIGTERM', async () => {
    const main = 'scripts/services/documentdb/gateway.main.ts';
    const child = spawn(process.execPath, ['--import', 'tsx', main, '--port', '0', '--pg-port', `${harness.pgPort}`], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    expect(line).toMatch(/^listening \d+$/);
    const client = await harness.connect(`mongodb://127.0.0.1:${line.split(' ')[1]}/?replicaSet=rs0`);
    expect(await client.db('admin').command({ ping: 1 })).toMatchObject({ ok: 1 });
    await client.close(true);
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([0, null]);
  });
});
