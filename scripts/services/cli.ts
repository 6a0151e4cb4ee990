// `npm run services -- up|down|status|env [mongo] [kafka] [redis] [--json]`. Standard output carries only the answer;
// progress goes to standard error, so that `eval "$(npm run -s services -- env)"` works.
import { SERVICE_NAMES } from './services.catalog.js';
import { asEnvironment, down, ServiceMissingError, status, up } from './services.js';
import type { ServiceName } from './services.js';

const USAGE = 'usage: npm run services -- up|down|status|env [mongo] [kafka] [redis] [--json]';

const log = (line: string): void => console.error(line);

const isService = (word: string): word is ServiceName => (SERVICE_NAMES as string[]).includes(word);

function refuse(): void {
  console.error(USAGE);
  process.exitCode = 2;
}

async function printEnvironment(names: ServiceName[], json: boolean): Promise<void> {
  const environment = asEnvironment(await up(names, log));
  if (json) console.log(JSON.stringify(environment));
  else for (const [name, value] of Object.entries(environment)) console.log(`export ${name}='${value}'`);
}

async function main(args: string[]): Promise<void> {
  const json = args.includes('--json');
  const [command, ...words] = args.filter((arg) => arg !== '--json');
  if (!words.every(isService)) return refuse();
  const names = words.length > 0 ? words : SERVICE_NAMES;
  if (command === 'up') {
    await up(names, log);
    console.log((await status(names)).join('\n'));
  } else if (command === 'env') await printEnvironment(names, json);
  else if (command === 'down') await down(names, log);
  else if (command === 'status') console.log((await status(names)).join('\n'));
  else refuse();
}

try {
  await main(process.argv.slice(2));
} catch (error) {
  console.error(error instanceof ServiceMissingError ? error.message : error);
  process.exitCode = 1;
}
