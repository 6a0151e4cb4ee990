// `npm run faults -- <scenario…> | all [--seed N] [--rounds N] [--length N] [--json]`: kills, stalls, cuts and lies to
// real pods, then judges what they did (docs/faults.md). One report per round on stdout; with `--json` one JSON object a
// line. The exit code is 1 when an invariant was broken.
import { SCENARIOS } from '../../test/faults/scenarios/index.js';
import { runRound } from '../../test/faults/bench/run_round.js';
import type { RoundReport, Scenario } from '../../test/faults/bench/scenario.types.js';
import { asEnvironment, up } from '../services/services.js';
import { parseArguments, USAGE } from './arguments.js';

const describe = ({ name, about }: Scenario): string => `  ${name.padEnd(18)} ${about}`;

function asText({ scenario, seed, violations, schedule: _, ...figures }: RoundReport): string {
  const parts = Object.entries(figures).map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`);
  const broken = violations.map(({ invariant, text }) => `  BROKEN ${invariant}: ${text}`);
  return [`${scenario} seed ${seed}: ${parts.join(', ')}`, ...broken].join('\n');
}

async function main(): Promise<number> {
  const known = SCENARIOS.map(({ name }) => name);
  const wish = parseArguments(process.argv.slice(2), known);
  if ('fault' in wish) {
    console.error(`${wish.fault}\n${USAGE}\n${SCENARIOS.map(describe).join('\n')}`);
    return 2;
  }
  const addresses = await up(['mongo'], (line) => void process.stderr.write(`${line}\n`));
  Object.assign(process.env, asEnvironment(addresses));
  let broken = 0;
  for (let round = 0; round < wish.rounds; round++) {
    for (const scenario of SCENARIOS.filter(({ name }) => wish.names.includes(name))) {
      const report = await runRound(scenario, String(wish.seed + round), wish.length);
      console.log(wish.json ? JSON.stringify(report) : asText(report));
      broken += report.violations.length;
    }
  }
  return broken > 0 ? 1 : 0;
}

process.exit(await main());
