// `npm run explain [-- --rows N] [--json]`: the plan of every query of the engine, on a loaded database of its own; MongoDB
// or DocumentDB, whichever the services are. The exit code is 1 when a plan has a fault.
import type { Connection } from 'mongoose';
import { up } from './services/services.js';
import { connect, databaseName, dropAndClose } from './bench/database.js';
import { ENGINE_QUERIES } from './bench/engine_queries.js';
import { loadForPlans } from './bench/queries/loaded.js';
import { faultsOf, type EngineQuery, type Loaded } from './bench/queries/query.js';
import { plansOf, type Plan } from './bench/query_plans.js';

const DEFAULT_ROWS = 20_000;
/** A planner that has no statistics of fresh rows gathers them within a minute. */
const MAX_TRIES = 7;
const RETRY_MS = 15_000;

interface Told extends Plan {
  query: string;
  most: number;
  /** Why it may read a whole collection. */
  whole?: string;
  faults: string[];
}

async function explained(connection: Connection, loaded: Loaded, query: EngineQuery): Promise<Told[]> {
  const { name, examined: most, whole, run } = query;
  const plans = await plansOf(connection, () => run(loaded));
  return plans.map((plan) => ({ query: name, ...plan, most, ...(whole && { whole }), faults: faultsOf(query, plan) }));
}

async function main(args: readonly string[]): Promise<void> {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const rows = Number(args[args.indexOf('--rows') + 1] || 0) || DEFAULT_ROWS;
  const { mongoUri } = await up(['mongo'], say);
  const connection = await connect(mongoUri!, databaseName('explain'));
  try {
    say(`loading ${rows} rows of each kind`);
    const loaded = await loadForPlans(connection, rows);
    const found: Told[] = [];
    let tries = 0;
    for (const query of ENGINE_QUERIES) {
      let plans = await explained(connection, loaded, query);
      while (plans.some(({ faults }) => faults.length > 0) && ++tries < MAX_TRIES) {
        say(`${query.name}: ${plans.flatMap(({ faults }) => faults).join('; ')}; once more when there are statistics`);
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        plans = await explained(connection, loaded, query);
      }
      found.push(...plans);
    }
    if (args.includes('--json')) console.log(JSON.stringify(found));
    else console.table(found.map(asLine));
    if (found.some(({ faults }) => faults.length > 0)) process.exitCode = 1;
  } finally {
    await dropAndClose(connection);
  }
}

function asLine({
  query,
  command,
  indexes,
  sorts,
  keys,
  documents,
  returned,
  pages,
  most,
  whole,
  faults,
}: Told): object {
  const index = indexes.join(' ') || 'COLLSCAN';
  const note = faults.join('; ') || (whole ?? '');
  return { query, command, index, sorts, keys, documents, returned, pages, most, note };
}

await main(process.argv.slice(2));
