// Promises: each command is answered once, in its session's turn and in its transaction, and every failure becomes a reply.
// Must never let an error inside a transaction leave it open, nor answer a numbered write again by doing it again.
import { decode, encode, sessionKey } from './bson.codec.js';
import type { Document } from './bson.codec.js';
import { COMMANDS } from './commands/command.table.js';
import type { Handler } from './commands/command.table.js';
import type { ClientConnection } from './client.connection.js';
import { Scope } from './command.scope.js';
import type { Command, Services } from './command.scope.js';
import { duplicateOfError } from './duplicate_key.js';
import { Code, CommandError, errorReply } from './errors.js';
import type { PostgresError } from './errors.js';
import type { Session } from './session.registry.js';
import { transactionOf } from './session.registry.js';
import type { Transaction } from './transaction.js';
import type { Request } from './wire.protocol.js';

/** MongoDB refuses these inside a transaction, and so must we: PostgreSQL would run them. */
const OUTSIDE_ONLY = new Set(
  (
    'count explain drop dropDatabase dropIndexes renameCollection collMod validate collStats dbStats listDatabases ' +
    'listCollections listIndexes'
  ).split(' '),
);

export async function answer(services: Services, connection: ClientConnection, request: Request): Promise<Buffer> {
  const body = decode(request.body);
  const name = Object.keys(body)[0] ?? '';
  const db = typeof body.$db === 'string' ? body.$db : 'admin';
  const command: Command = { name, db, body, bytes: request.body, sequence: request.sequence, connection };
  try {
    return bytesOf(await dispatch(services, command));
  } catch (error) {
    const failure = (await duplicateOfError(services.pool, namespaceOf(command), error as PostgresError)) ?? error;
    return encode(errorReply(failure, scopeOf(command)));
  }
}

function dispatch(services: Services, command: Command): Promise<Buffer | Document> {
  const { body, name } = command;
  const key = body.txnNumber === undefined ? undefined : sessionKey(body.lsid);
  if (key === undefined) return handlerOf(name)(new Scope(services, command));
  const session = services.sessions.get(key);
  const number = BigInt(String(body.txnNumber));
  return session.exclusive(() => {
    if (body.autocommit !== false) return writeOnce(services, session, number, command);
    if (name === 'commitTransaction') return commit(session, number);
    if (name === 'abortTransaction') return abort(session, number);
    return inTransaction(services, session, number, command);
  });
}

function handlerOf(name: string): Handler {
  const handler = COMMANDS.get(name);
  if (!handler) throw new CommandError(Code.CommandNotFound, `no such command: '${name}'`);
  return handler;
}

/** A plain write with a number: when its answer was lost, the driver sends it again and wants that answer. */
async function writeOnce(services: Services, session: Session, number: bigint, command: Command): Promise<Buffer> {
  if (session.remembered?.number === number) return session.remembered.reply;
  await session.advance(number);
  const reply = bytesOf(await handlerOf(command.name)(new Scope(services, command)));
  services.sessions.remember(session, number, reply);
  return reply;
}

async function commit(session: Session, number: bigint): Promise<Document> {
  await session.find(number).commit();
  return { ok: 1 };
}

async function abort(session: Session, number: bigint): Promise<Document> {
  await session.open(number).rollBack();
  return { ok: 1 };
}

async function inTransaction(
  services: Services,
  session: Session,
  number: bigint,
  command: Command,
): Promise<Buffer | Document> {
  let transaction: Transaction | undefined;
  try {
    const { connection, body } = command;
    const starts = body.startTransaction === true;
    transaction = await transactionOf(session, services.pool, { number, starts, connection });
    if (OUTSIDE_ONLY.has(command.name)) throw notInTransaction(command.name);
    return await handlerOf(command.name)(new Scope(services, command, transaction));
  } catch (error) {
    await transaction?.rollBack();
    throw error;
  }
}

function notInTransaction(name: string): CommandError {
  return new CommandError(
    Code.OperationNotSupportedInTransaction,
    `Cannot run '${name}' in a multi-document transaction.`,
  );
}

function bytesOf(reply: Buffer | Document): Buffer {
  return Buffer.isBuffer(reply) ? reply : encode(reply);
}

function namespaceOf({ db, body, name }: Command): { db: string; collection: string } {
  return { db, collection: String(body[name]) };
}

function scopeOf({ body, name }: Command): { inTransaction: boolean; retryableWrite: boolean; committing: boolean } {
  const inTransaction = body.autocommit === false;
  return {
    inTransaction,
    retryableWrite: body.txnNumber !== undefined && !inTransaction,
    committing: name === 'commitTransaction',
  };
}
