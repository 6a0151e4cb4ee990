// Promises: indexes are built before the answer, whoever else builds the same ones at the same time; answers are shaped as
// MongoDB's. Must never build two at once on one collection from here: the builds would only meet in PostgreSQL's catalogs and fail.
import { decode, encode } from '../bson.codec.js';
import type { Document } from '../bson.codec.js';
import { Code, CommandError, isCatalogRace } from '../errors.js';
import type { PostgresError } from '../errors.js';
import type { Scope } from '../command.scope.js';
import { statement } from '../postgres.pool.js';

const CREATE_COLLECTION = statement('SELECT documentdb_api.create_collection($1::text, $2::text)');
const CREATE_INDEXES = statement(
  'SELECT documentdb_api_internal.create_indexes_non_concurrently($1::text, $2::documentdb_core.bson, true)',
);
const DROP_INDEXES = statement('CALL documentdb_api.drop_indexes($1::text, $2::documentdb_core.bson, NULL)');
const LIST_INDEXES = statement(
  `SELECT cursorpage FROM documentdb_api.list_indexes_cursor_first_page($1::text, $2::documentdb_core.bson, 0)`,
);

const builds = new Map<string, Promise<unknown>>();
function oneByOne<T>(collection: string, build: () => Promise<T>): Promise<T> {
  const built = (builds.get(collection) ?? Promise.resolve()).then(build);
  const settled = built
    .catch(() => undefined)
    .finally(() => {
      if (builds.get(collection) === settled) builds.delete(collection);
    });
  builds.set(collection, settled);
  return built;
}

async function createIndexes(scope: Scope): Promise<Document> {
  const { command, transaction } = scope;
  const collection = String(command.body.createIndexes);
  const build = async (): Promise<Document> => {
    const [made] = await scope.query(CREATE_COLLECTION, [command.db, collection]);
    const reply = decode(await scope.document(CREATE_INDEXES, [command.db, command.bytes]));
    const shard = (reply.raw as { defaultShard?: Document } | undefined)?.defaultShard ?? reply;
    return { ...shard, createdCollectionAutomatically: made?.create_collection === 't', ok: 1 };
  };
  try {
    return await (transaction ? build() : oneByOne(`${command.db}.${collection}`, build));
  } catch (error) {
    throw duplicatesFound(error as PostgresError, command.db, collection, command.body) ?? error;
  }
}

function duplicatesFound(error: PostgresError, db: string, collection: string, body: Document): Error | undefined {
  if ((error.code !== '23P01' && error.code !== '23505') || isCatalogRace(error)) return undefined;
  const names = ((body.indexes ?? []) as Document[]).map(({ name }) => String(name)).join(', ');
  return new CommandError(
    Code.DuplicateKey,
    `Index build failed: E11000 duplicate key error collection: ${db}.${collection} index: ${names}`,
  );
}

/** How the extension stores an index is no business of those who compare options. */
async function listIndexes(scope: Scope): Promise<Buffer> {
  const page = decode(await scope.document(LIST_INDEXES, [scope.command.db, scope.command.bytes]));
  const cursor = page.cursor as { firstBatch: Document[] };
  for (const index of cursor.firstBatch) delete index.storageEngine;
  return encode(page);
}

async function dropIndexes(scope: Scope): Promise<Buffer> {
  const { db, body, bytes } = scope.command;
  return oneByOne(`${db}.${String(body.dropIndexes)}`, () => scope.document(DROP_INDEXES, [db, bytes]));
}

export const indexCommands = { createIndexes, dropIndexes, listIndexes };
