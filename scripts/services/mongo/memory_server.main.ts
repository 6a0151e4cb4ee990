// Holds a replica set of one real mongod for as long as it runs; argument: the port. Prints `ready <uri>` when it
// serves. It is a process of its own because the server ends with the process that started it.
import { MongoMemoryReplSet } from 'mongodb-memory-server-core';
import { mongodBinary } from './mongod.binary.js';

const replicaSet = await MongoMemoryReplSet.create({
  binary: await mongodBinary(),
  instanceOpts: [{ port: Number(process.argv[2]) }],
  replSet: { name: 'rs0', count: 1, ip: '127.0.0.1', storageEngine: 'wiredTiger' },
});

let stopping = false;
const stop = (): void => {
  if (stopping) return;
  stopping = true;
  void replicaSet.stop().then(() => process.exit(0));
};
process.on('SIGTERM', stop);
process.on('SIGINT', stop);

console.log(`ready ${replicaSet.getUri()}`);
