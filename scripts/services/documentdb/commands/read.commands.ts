// Promises: queries give their first batch, and a cursor for the rest wherever it lives (see cursor.registry.ts).
// Must never give a connection back that PostgreSQL keeps a result open on.
import type { Scope } from '../command.scope.js';
import { documentOf } from '../command.scope.js';
import type { Row, Statement } from '../postgres.pool.js';
import { statement } from '../postgres.pool.js';

const firstPage = (fn: string): Statement =>
  statement(
    `SELECT cursorpage, continuation, persistconnection
     FROM documentdb_api.${fn}_cursor_first_page($1::text, $2::documentdb_core.bson, $3::int8)`,
  );
const single = (fn: string): Statement =>
  statement(`SELECT document FROM documentdb_api.${fn}_query($1::text, $2::documentdb_core.bson)`);

async function openCursor(scope: Scope, what: Statement): Promise<Buffer> {
  const id = scope.services.cursors.nextId();
  const values = [scope.command.db, scope.command.bytes, String(id)];
  return scope.transaction ? inTransaction(scope, id, what, values) : outside(scope, id, what, values);
}

async function inTransaction(scope: Scope, id: bigint, what: Statement, values: unknown[]): Promise<Buffer> {
  const rows = await scope.query(what, values);
  keep(scope, id, rows[0]);
  return documentOf(rows);
}

async function outside(scope: Scope, id: bigint, what: Statement, values: unknown[]): Promise<Buffer> {
  return scope.retried(async () => {
    const lease = await scope.services.pool.lease();
    let kept = false;
    try {
      const rows = await scope.on(lease, what, values);
      kept = rows[0]?.persistconnection === 't' && rows[0].continuation !== null;
      keep(scope, id, rows[0], kept ? lease : undefined);
      return documentOf(rows);
    } finally {
      if (!kept) await lease.release();
    }
  });
}

function keep(
  { services, command, transaction }: Scope,
  id: bigint,
  row?: Row,
  lease?: Parameters<Scope['on']>[0],
): void {
  if (!row?.continuation) return;
  const continuation = row.continuation as Buffer;
  services.cursors.add(id, { db: command.db, continuation, lease, transaction }, command.connection);
}

const opening = (fn: string) => {
  const what = firstPage(fn);
  return (scope: Scope) => openCursor(scope, what);
};
const answering = (fn: string) => {
  const what = single(fn);
  return (scope: Scope) => scope.document(what, [scope.command.db, scope.command.bytes]);
};

export const readCommands = {
  find: opening('find'),
  aggregate: opening('aggregate'),
  listCollections: opening('list_collections'),
  count: answering('count'),
  distinct: answering('distinct'),
};
