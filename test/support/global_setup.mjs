// Hands the addresses of the development services to the suites that need them, by the same command that a person would
// use. Plain JavaScript: Jest loads it before any transform of its projects applies.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));
const VARIABLES = ['MONGO_URI', 'KAFKA_BROKERS', 'QUEUE_REDIS_URL'];

export default function globalSetup() {
  if (VARIABLES.every((name) => process.env[name])) return;
  const printed = execFileSync(process.execPath, ['--import', 'tsx', 'scripts/services/cli.ts', 'env', '--json'], {
    cwd: CHECKOUT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  Object.assign(process.env, JSON.parse(printed));
}
