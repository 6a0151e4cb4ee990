// Holds a replica set of one real mongod for as long as it runs; argument: the port. Prints `ready <uri>` when it
// serves. It is a process of its own because the server ends with the process that started it.
import { MongoMemoryReplSet } from 'mongodb-memory-server-core';
import { mongodBinary } from './mongod.binary.js';

async function serve(port: number): Promise<void> {
  const replicaSet = await MongoMemoryReplSet.create({
    binary: mongodBinary(),
    instanceOpts: [{ port }],
    replSet: { name: 'rs0', count: 1, ip: '127.0.0.1', storageEngine: 'wiredTiger' },
  });
  const stop = (): void => void replicaSet.stop().finally(() => process.exit(0));
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, stop);
  console.log(`ready ${replicaSet.getUri()}`);
}

try {
  await serve(Number(process.argv[2]));
} catch (error) {
  // Whoever started us shows the end of this log in one line: a stack would hide the reason.
  console.error(error instanceof Error ? error.message : error);
  process.exit(1);
}
