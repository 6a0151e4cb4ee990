// Promises: explain of reads, and of the reading part of writes, in MongoDB's shape; the plan as PostgreSQL gave it is kept
// under `pgPlan`. Must never write: an update is explained as the query that finds what it would change.
import { encode } from '../bson.codec.js';
import type { Document } from '../bson.codec.js';
import type { Scope } from '../command.scope.js';
import { Code, CommandError } from '../errors.js';
import { executionStats, planTree } from '../explain.plan.js';
import type { PgPlan } from '../explain.plan.js';
import { statement } from '../postgres.pool.js';
import type { Statement } from '../postgres.pool.js';

type Kind = 'find' | 'pipeline' | 'count' | 'distinct';

const explaining = (kind: Kind, analyze: boolean): Statement =>
  statement(
    `EXPLAIN (FORMAT JSON, VERBOSE true, ANALYZE ${analyze}, TIMING ${analyze})
     SELECT document FROM documentdb_api_catalog.bson_aggregation_${kind}($1::text, $2::documentdb_core.bson)`,
  );
const PLANS = (['find', 'pipeline', 'count', 'distinct'] as const).map(
  (kind) => [kind, { plan: explaining(kind, false), run: explaining(kind, true) }] as const,
);
const STATEMENTS = new Map(PLANS);

async function explain(scope: Scope): Promise<Document> {
  const { command } = scope;
  const inner = command.body.explain as Document;
  const { kind, query } = explained(inner);
  const executes = command.body.verbosity !== 'queryPlanner';
  const statements = STATEMENTS.get(kind)!;
  const [row] = await scope.query(executes ? statements.run : statements.plan, [command.db, encode(query)]);
  const [explanation] = JSON.parse(row?.['QUERY PLAN'] as string) as [PgPlan];
  return {
    explainVersion: '1',
    queryPlanner: {
      namespace: `${command.db}.${String(Object.values(query)[0])}`,
      winningPlan: planTree(explanation.Plan),
      rejectedPlans: [],
    },
    ...(executes ? { executionStats: executionStats(explanation) } : {}),
    command: inner,
    pgPlan: JSON.stringify(explanation),
    ok: 1,
  };
}

/** The query that a command asks, and how the extension calls its kind. */
function explained(inner: Document): { kind: Kind; query: Document } {
  const name = Object.keys(inner)[0] ?? '';
  const collection: unknown = inner[name];
  switch (name) {
    case 'find':
    case 'count':
    case 'distinct':
      return { kind: name, query: inner };
    case 'aggregate':
      return { kind: 'pipeline', query: { ...inner, cursor: inner.cursor ?? {} } };
    case 'update':
      return { kind: 'find', query: readOf(collection, (inner.updates as Document[])[0] ?? {}, 'multi') };
    case 'delete':
      return { kind: 'find', query: readOf(collection, (inner.deletes as Document[])[0] ?? {}, 'limit') };
    case 'findAndModify':
    case 'findandmodify':
      return {
        kind: 'find',
        query: { ...readOf(collection, { ...inner, q: inner.query }, 'multi'), sort: inner.sort },
      };
    default:
      throw new CommandError(Code.CommandNotFound, `Explain failed due to unknown command: ${name}`);
  }
}

function readOf(collection: unknown, operation: Document, howMany: 'multi' | 'limit'): Document {
  const all = howMany === 'multi' ? operation.multi === true : operation.limit === 0;
  return {
    find: collection,
    filter: operation.q ?? {},
    hint: operation.hint,
    collation: operation.collation,
    ...(all ? {} : { limit: 1 }),
  };
}

export const explainCommands = { explain };
