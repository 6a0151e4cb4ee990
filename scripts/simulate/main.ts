// `npm run simulate -- leases [--pods N] [--partitions N] [--targets N] [--seed N] [--json]`: no database, no waiting. The
// exit code is 1 when a partition had two owners, or when one had none after the pods had settled.
import { parseArguments, USAGE } from './arguments.js';
import { simulateLeases } from './leases.js';
import { asText } from './report.js';

function main(words: readonly string[]): number {
  const wish = parseArguments(words);
  if ('fault' in wish) {
    console.error(`${wish.fault}\n${USAGE}`);
    return 2;
  }
  const report = simulateLeases(wish);
  console.log(wish.json ? JSON.stringify(report) : asText(report));
  return report.two_owners === 0 && report.settled ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
