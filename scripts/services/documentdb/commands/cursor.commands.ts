// Promises: further batches come from where the cursor lives, and a closed cursor leaves nothing behind.
import type { Document } from '../bson.codec.js';
import type { Cursor } from '../cursor.registry.js';
import { Code, CommandError } from '../errors.js';
import type { Scope } from '../command.scope.js';
import { statement } from '../postgres.pool.js';
import type { Row } from '../postgres.pool.js';

const GET_MORE = statement(
  `SELECT cursorpage, continuation
   FROM documentdb_api.cursor_get_more($1::text, $2::documentdb_core.bson, $3::documentdb_core.bson)`,
);

async function getMore(scope: Scope): Promise<Buffer> {
  const { command, services } = scope;
  const id = String(command.body.getMore);
  return services.cursors.use(id, command.connection, async (cursor) => {
    const [row] = await nextBatch(scope, cursor);
    if (row?.continuation) cursor.home.continuation = row.continuation as Buffer;
    else {
      cursor.busy = false; // read to its end: closing it need not stop anything
      await services.cursors.close(id);
    }
    return row?.cursorpage as Buffer;
  });
}

function nextBatch(scope: Scope, { id, home }: Cursor): Promise<Row[]> {
  if (home.transaction !== scope.transaction) {
    throw new CommandError(Code.CursorNotFound, `cursor id ${id} belongs to another transaction`);
  }
  const values = [home.db, scope.command.bytes, home.continuation];
  return home.lease ? scope.on(home.lease, GET_MORE, values) : scope.query(GET_MORE, values);
}

async function killCursors({ services, command }: Scope): Promise<Document> {
  const ids = (command.body.cursors ?? []) as (bigint | number)[];
  const closed = await Promise.all(ids.map((id) => services.cursors.close(String(id))));
  return {
    cursorsKilled: ids.filter((_, at) => closed[at]),
    cursorsNotFound: ids.filter((_, at) => !closed[at]),
    cursorsAlive: [],
    cursorsUnknown: [],
    ok: 1,
  };
}

export const cursorCommands = { getMore, killCursors };
