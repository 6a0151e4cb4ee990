// Promises: collections and databases come, change and go. Must never fail because two clients did the same at once.
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';
import { statement } from '../postgres.pool.js';
import type { Statement } from '../postgres.pool.js';

const BSON = '::documentdb_core.bson';
const CREATE = statement(`SELECT documentdb_api.create_collection_view($1::text, $2${BSON})`);
const DROP = statement('SELECT documentdb_api.drop_collection($1::text, $2::text)');
const DROP_DATABASE = statement('SELECT documentdb_api.drop_database($1::text)');
const COLL_MOD = statement(`SELECT documentdb_api.coll_mod($1::text, $2::text, $3${BSON})`);
const COLL_STATS = statement('SELECT documentdb_api.coll_stats($1::text, $2::text, $3::float8)');
const DB_STATS = statement('SELECT documentdb_api.db_stats($1::text, $2::float8, false)');
const LIST_DATABASES = statement(`SELECT documentdb_api.list_databases($1${BSON})`);
const RENAME = statement(`SELECT documentdb_api.rename_collection($1${BSON})`);
const VALIDATE = statement(`SELECT document FROM documentdb_api.validate($1::text, $2${BSON})`);

const answer =
  (what: Statement, values: (scope: Scope) => unknown[]) =>
  (scope: Scope): Promise<Buffer> =>
    scope.document(what, values(scope));
const named = ({ command }: Scope): string => String(command.body[command.name]);
const scale = ({ command }: Scope): number => Number(command.body.scale ?? 1);

export const collectionCommands = {
  create: answer(CREATE, ({ command }) => [command.db, command.bytes]),
  collMod: answer(COLL_MOD, (scope) => [scope.command.db, named(scope), scope.command.bytes]),
  collStats: answer(COLL_STATS, (scope) => [scope.command.db, named(scope), scale(scope)]),
  dbStats: answer(DB_STATS, (scope) => [scope.command.db, scale(scope)]),
  listDatabases: answer(LIST_DATABASES, ({ command }) => [command.bytes]),
  validate: answer(VALIDATE, ({ command }) => [command.db, command.bytes]),
  renameCollection: async (scope: Scope): Promise<Document> => {
    await scope.query(RENAME, [scope.command.bytes]);
    return { ok: 1 };
  },
  drop: async (scope: Scope): Promise<Document> => {
    const { db } = scope.command;
    const [row] = await scope.query(DROP, [db, named(scope)]);
    // Since 7.0 dropping what is not there is no error.
    return row?.drop_collection === 't' ? { nIndexesWas: 1, ns: `${db}.${named(scope)}`, ok: 1 } : { ok: 1 };
  },
  dropDatabase: async (scope: Scope): Promise<Document> => {
    await scope.query(DROP_DATABASE, [scope.command.db]);
    return { dropped: scope.command.db, ok: 1 };
  },
};
