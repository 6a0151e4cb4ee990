// `npm run explain [-- --rows N] [--json]`: the plan of every query of the engine's loops, on a loaded collection of its own.
import { up } from './services/services.js';
import { connect, databaseName, dropAndClose } from './bench/database.js';
import { ENGINE_QUERIES, loadForPlans } from './bench/engine_queries.js';
import { plansOf } from './bench/query_plans.js';
import { ensureIndexes } from '../src/jobs/store/boot.store.js';
import { openCollections } from '../src/jobs/store/collections.js';

const DEFAULT_ROWS = 20_000;

async function main(args: readonly string[]): Promise<void> {
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const rows = Number(args[args.indexOf('--rows') + 1] || 0) || DEFAULT_ROWS;
  const { mongoUri } = await up(['mongo'], say);
  const connection = await connect(mongoUri!, databaseName('explain'));
  try {
    const collections = await openCollections(connection);
    await ensureIndexes(collections);
    say(`loading ${rows} rows of each kind`);
    const loaded = await loadForPlans(collections, rows);
    const found = [];
    for (const { name, examined, run } of ENGINE_QUERIES) {
      for (const plan of await plansOf(connection, () => run(collections, loaded))) {
        found.push({ query: name, ...plan, most: examined });
      }
    }
    if (args.includes('--json')) console.log(JSON.stringify(found));
    else
      console.table(
        found.map(({ query, command, indexes, sorts, keys, documents, returned, pages, most }) => {
          const index = indexes.join(' ') || 'COLLSCAN';
          return { query, command, index, sorts, keys, documents, returned, pages, most };
        }),
      );
  } finally {
    await dropAndClose(connection);
  }
}

await main(process.argv.slice(2));
