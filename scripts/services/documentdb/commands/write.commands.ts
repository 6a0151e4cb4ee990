// Promises: inserts, updates and deletes answer as MongoDB's do, their failed operations with their place in the batch.
// Must never apply an operation twice: after a conflict only the operations that failed by it run again.
import { decode, encode } from '../bson.codec.js';
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';
import { duplicateOfWrite } from '../duplicate_key.js';
import type { Rejected } from '../duplicate_key.js';
import { Code, CommandError, codeOfState, isConflict, unpackState } from '../errors.js';
import { statement } from '../postgres.pool.js';
import type { Statement } from '../postgres.pool.js';
import { WriteBatch } from '../write.batch.js';

const write = (fn: string): Statement =>
  statement(
    `SELECT p_result, p_success
     FROM documentdb_api.${fn}($1::text, $2::documentdb_core.bson, $3::documentdb_core.bsonsequence, NULL)`,
  );
const EXISTS = statement(
  `SELECT cursorpage FROM documentdb_api.find_cursor_first_page($1::text, $2::documentdb_core.bson, 0)`,
);

export interface WriteError {
  index: number;
  code: number;
  errmsg: string;
}

const OPERATIONS: Record<string, string> = { insert: 'documents', update: 'updates', delete: 'deletes' };

const writing = (name: 'insert' | 'update' | 'delete') => {
  const what = write(name);
  return async (scope: Scope): Promise<Buffer | Document> => {
    const { db, bytes, sequence } = scope.command;
    const [row] = await scope.query(what, [db, bytes, sequence ?? null]);
    const reply = row?.p_result as Buffer;
    return row?.p_success === 't' ? reply : failed(scope, what, decode(reply));
  };
};

async function failed(scope: Scope, what: Statement, first: Document): Promise<Document> {
  const { command, transaction } = scope;
  const batch = new WriteBatch(command, OPERATIONS[command.name]!, isConflictState);
  let reply = first;
  if (transaction) throwOnConflict(first);
  else {
    reply = await batch.settle(first, async (bytes, sequence) => {
      const [row] = await scope.query(what, [command.db, bytes, sequence]);
      return decode(row?.p_result as Buffer);
    });
  }
  const errors = (reply.writeErrors ?? []) as WriteError[];
  reply.writeErrors = await Promise.all(errors.map((error) => told(scope, batch, error)));
  if (errors.length === 0) delete reply.writeErrors;
  else await transaction?.rollBack(); // as on MongoDB, a failed write aborts the transaction
  return reply;
}

function isConflictState(packed: number): boolean {
  return isConflict({ code: unpackState(packed), message: '' });
}

function throwOnConflict({ writeErrors }: Document): void {
  const conflict = ((writeErrors ?? []) as WriteError[]).find(({ code }) => isConflictState(code));
  if (conflict) throw new CommandError(Code.WriteConflict, `WriteConflict error: ${conflict.errmsg}`);
}

/** One failed operation, as MongoDB tells it. */
async function told(scope: Scope, batch: WriteBatch, error: WriteError): Promise<Document> {
  const code = codeOfState(unpackState(error.code));
  if (code !== Code.DuplicateKey) return { ...error, code };
  const { command, services, transaction } = scope;
  const namespace = { db: command.db, collection: String(command.body[command.name]) };
  const operation = batch.operation(error.index) ?? {};
  const rejected = command.name === 'insert' ? { document: operation, whole: true } : whatUpdateSets(operation);
  const found = await duplicateOfWrite(services.pool, namespace, error.errmsg, rejected);
  if (transaction && found.keyValue && !(await isVisible(scope, found.keyValue))) {
    throw new CommandError(Code.WriteConflict, `WriteConflict error: ${found.message}, written since the snapshot`);
  }
  const { message, keyPattern, keyValue } = found;
  return { index: error.index, code, errmsg: message, keyPattern, keyValue };
}

/** What is known of the document that an update would have made: enough for a key that it sets. */
function whatUpdateSets({ q, u }: Document): Rejected {
  const { $set, $setOnInsert, ...rest } = (u ?? {}) as Record<string, Document>;
  const replaced = Object.keys(rest).some((name) => name.startsWith('$')) ? {} : rest;
  return { document: { ...(q as Document), ...replaced, ...$setOnInsert, ...$set }, whole: false };
}

/**
 * In a transaction MongoDB tells a key that the snapshot shows (a duplicate) from one that another has committed since (a
 * conflict: run the transaction again). PostgreSQL calls both a duplicate, so the snapshot is asked.
 */
async function isVisible(scope: Scope, key: Document): Promise<boolean> {
  const query = {
    find: String(scope.command.body[scope.command.name]),
    filter: key,
    projection: { _id: 1 },
    limit: 1,
    singleBatch: true,
  };
  const page = decode(await scope.document(EXISTS, [scope.command.db, encode(query)]));
  return (page.cursor as { firstBatch: unknown[] }).firstBatch.length > 0;
}

export const writeCommands = {
  insert: writing('insert'),
  update: writing('update'),
  delete: writing('delete'),
};
