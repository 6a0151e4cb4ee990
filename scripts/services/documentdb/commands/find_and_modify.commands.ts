// Promises: one document found and changed in one step. A conflict outside of transactions is retried (command.scope.ts).
import type { Scope } from '../command.scope.js';
import { statement } from '../postgres.pool.js';

const FIND_AND_MODIFY = statement(
  'SELECT p_result FROM documentdb_api.find_and_modify($1::text, $2::documentdb_core.bson, NULL)',
);

const findAndModify = (scope: Scope): Promise<Buffer> =>
  scope.document(FIND_AND_MODIFY, [scope.command.db, scope.command.bytes]);

export const findAndModifyCommands = { findAndModify, findandmodify: findAndModify };
