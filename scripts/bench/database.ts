// Databases of a bench's own: named so that they can be recognised, dropped at the end.
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';

export const databaseName = (what: string): string => `bench_${what}_${randomUUID().slice(0, 8)}`;

export async function connect(uri: string, dbName: string): Promise<Connection> {
  return mongoose.createConnection(uri, { dbName, monitorCommands: true }).asPromise();
}

export async function dropAndClose(connection: Connection): Promise<void> {
  await connection.dropDatabase();
  await connection.close();
}

export async function dropDatabase(uri: string, dbName: string): Promise<void> {
  await dropAndClose(await connect(uri, dbName));
}
