// Promises: the handshake and what drivers, shells and health checks ask a server about itself.
// Must never need PostgreSQL: a driver finds out through a real command that the database is down.
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';

/** What drivers may expect of the server: MongoDB 7.0. */
const WIRE_VERSION = 21;
const VERSION = '7.0.0';
/** The extension takes no more operations in one command. */
const MAX_WRITE_BATCH = 25_000;

/** A one-member replica set, as drivers allow transactions on nothing smaller. */
function hello({ services, command }: Scope): Document {
  const { address, set } = services.identity;
  return {
    isWritablePrimary: true,
    ismaster: true,
    secondary: false,
    helloOk: true,
    setName: set,
    setVersion: 1,
    hosts: [address],
    primary: address,
    me: address,
    maxBsonObjectSize: 16 * 1024 * 1024,
    maxMessageSizeBytes: 48_000_000,
    maxWriteBatchSize: MAX_WRITE_BATCH,
    localTime: new Date(),
    logicalSessionTimeoutMinutes: 30,
    connectionId: command.connection.id,
    minWireVersion: 0,
    maxWireVersion: WIRE_VERSION,
    readOnly: false,
    ok: 1,
  };
}

const sayHello = (scope: Scope) => Promise.resolve(hello(scope));
const sayOk = () => Promise.resolve({ ok: 1 });
const buildInfo = () =>
  Promise.resolve({
    version: VERSION,
    versionArray: VERSION.split('.').map(Number).concat(0),
    gitVersion: 'documentdb',
    modules: [],
    storageEngines: ['documentdb'],
    bits: 64,
    maxBsonObjectSize: 16 * 1024 * 1024,
    ok: 1,
  });

export const adminCommands = {
  hello: sayHello,
  isMaster: sayHello,
  ismaster: sayHello,
  ping: sayOk,
  getParameter: sayOk,
  buildInfo,
  buildinfo: buildInfo,
  whatsmyuri: ({ command }: Scope) => Promise.resolve({ you: `127.0.0.1:${command.connection.id}`, ok: 1 }),
  getCmdLineOpts: () => Promise.resolve({ argv: ['documentdb'], parsed: {}, ok: 1 }),
  serverStatus: ({ services }: Scope) =>
    Promise.resolve({
      host: services.identity.address,
      version: VERSION,
      process: 'documentdb',
      pid: process.pid,
      uptime: process.uptime(),
      localTime: new Date(),
      ok: 1,
    }),
  replSetGetStatus: ({ services: { identity } }: Scope) =>
    Promise.resolve({
      set: identity.set,
      myState: 1,
      members: [{ _id: 0, name: identity.address, health: 1, state: 1, stateStr: 'PRIMARY', self: true }],
      ok: 1,
    }),
};
