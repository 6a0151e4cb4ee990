// Promises: a duplicate key is told as MongoDB tells it, with the index's name, its pattern and, where the document is
// known, the key. Must never fail itself: what cannot be found out is left out.
import { decode } from './bson.codec.js';
import type { Document } from './bson.codec.js';
import { Code, CommandError, isCatalogRace } from './errors.js';
import type { PostgresError } from './errors.js';
import type { PostgresPool, Row, Statement } from './postgres.pool.js';
import { statement } from './postgres.pool.js';
import { shellText } from './shell.text.js';

const INDEX = `SELECT (index_spec).index_name AS name, (index_spec).index_key AS key
  FROM documentdb_api_catalog.collection_indexes JOIN documentdb_api_catalog.collections USING (collection_id)`;
const BY_NAME = statement(
  `${INDEX} WHERE database_name = $1 AND collection_name = $2 AND (index_spec).index_name = $3`,
);
const BY_ID = statement(`${INDEX} WHERE index_id = $1`);

/** The document that was refused, whole or what is known of it. */
export interface Rejected {
  document: Document;
  whole: boolean;
}

export interface Duplicate {
  message: string;
  keyPattern?: Document;
  keyValue?: Document;
}

/** From the message of a single write, which names the index: "… Index 'dedupe'". */
export async function duplicateOfWrite(
  pool: PostgresPool,
  namespace: { db: string; collection: string },
  message: string,
  rejected: Rejected,
): Promise<Duplicate> {
  const index = /Index '(.*)'$/.exec(message)?.[1] ?? '_id_';
  const rows = await look(pool, BY_NAME, [namespace.db, namespace.collection, index]);
  return describe(namespace, index, rows[0], rejected);
}

/** From an error of PostgreSQL itself, which names its own constraint. Undefined when it is another error. */
export async function duplicateOfError(
  pool: PostgresPool,
  namespace: { db: string; collection: string },
  error: PostgresError,
): Promise<CommandError | undefined> {
  if ((error.code !== '23505' && error.code !== '23P01') || isCatalogRace(error)) return undefined;
  const id = /^documents_rum_index_(\d+)$/.exec(error.constraint ?? '')?.[1];
  const rows = id
    ? await look(pool, BY_ID, [id])
    : await look(pool, BY_NAME, [namespace.db, namespace.collection, '_id_']);
  const index = (rows[0]?.name as string | undefined) ?? (id ? 'unknown' : '_id_');
  const found = describe(namespace, index, rows[0], documentIn(error, id !== undefined));
  return new CommandError(Code.DuplicateKey, found.message, { keyPattern: found.keyPattern, keyValue: found.keyValue });
}

async function look(pool: PostgresPool, what: Statement, values: unknown[]): Promise<Row[]> {
  return pool.aside(what, values).catch(() => []);
}

function describe(
  { db, collection }: { db: string; collection: string },
  index: string,
  row?: Row,
  rejected?: Rejected,
): Duplicate {
  const keyPattern = row?.key ? decode(row.key as Buffer) : undefined;
  const keyValue = keyPattern && rejected && keyOf(keyPattern, rejected);
  const shown = keyValue ? ` dup key: ${shellText(keyValue)}` : '';
  return {
    message: `E11000 duplicate key error collection: ${db}.${collection} index: ${index}${shown}`,
    keyPattern,
    keyValue,
  };
}

/** The values at the index's paths; one missing from a whole document counts as null, as in the index. */
function keyOf(pattern: Document, { document, whole }: Rejected): Document | undefined {
  const values = Object.keys(pattern).map(
    (path) => [path, valueAt(document, path) ?? (whole ? null : undefined)] as const,
  );
  return values.some(([, value]) => value === undefined) ? undefined : Object.fromEntries(values);
}

function valueAt(document: Document, path: string): unknown {
  if (path in document) return document[path];
  let value: unknown = document;
  for (const step of path.split('.')) value = (value as Document | undefined | null)?.[step];
  return value;
}

/** PostgreSQL shows the refused row as hexadecimal BSON: "Key (…)=(BSONHEX…, …) conflicts" or "…, BSONHEX…) already exists". */
function documentIn({ detail = '' }: PostgresError, inIndex: boolean): Rejected | undefined {
  const hex = (inIndex ? /=\(BSONHEX([0-9a-f]+)/ : /BSONHEX([0-9a-f]+)\) already exists/).exec(detail)?.[1];
  if (!hex) return undefined;
  const shown = decode(Buffer.from(hex, 'hex'));
  return { document: inIndex ? shown : { _id: Object.values(shown)[0] as unknown }, whole: true };
}
