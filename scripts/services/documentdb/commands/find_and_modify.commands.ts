// Promises: one document found and changed in one step. A conflict outside of transactions is retried (command.scope.ts).
// Must never pass a hint on: the extension refuses it here, and without it only chooses the index by itself.
import { decodeExactly, encode } from '../bson.codec.js';
import type { Command, Scope } from '../command.scope.js';
import { statement } from '../postgres.pool.js';

const FIND_AND_MODIFY = statement(
  'SELECT p_result FROM documentdb_api.find_and_modify($1::text, $2::documentdb_core.bson, NULL)',
);

const findAndModify = (scope: Scope): Promise<Buffer> =>
  scope.document(FIND_AND_MODIFY, [scope.command.db, withoutHint(scope.command)]);

function withoutHint({ body, bytes }: Command): Buffer {
  if (body.hint === undefined) return bytes;
  const { hint: _, ...rest } = decodeExactly(bytes);
  return encode(rest);
}

export const findAndModifyCommands = { findAndModify, findandmodify: findAndModify };
