// `npm run faults -- <scenario…> | all [--seed N] [--rounds N] …`: kills, stalls, cuts and lies to real pods, then judges
// what they did (docs/faults.md). A report on stdout as soon as a round is over (with `--json` one JSON object a line),
// with `--markdown` a table of all at the end. The exit code is 1 when an invariant was broken.
import { cpus, totalmem } from 'node:os';
import { SCENARIOS } from '../../test/faults/scenarios/index.js';
import { runRound } from '../../test/faults/bench/run_round.js';
import type { Scenario } from '../../test/faults/bench/scenario.types.js';
import { asEnvironment, up } from '../services/services.js';
import { parseArguments, USAGE, type Wish } from './arguments.js';
import { asTable, asText } from './report.js';
import { RoundsFile } from './rounds_file.js';

const describe = ({ name, about }: Scenario): string => `  ${name.padEnd(24)} ${about}`;

/** What is there to be run, seed by seed. */
function roundsOf({ names, seed, rounds, length }: Wish): { scenario: Scenario; seed: string; length: number }[] {
  const wanted = SCENARIOS.filter(({ name }) => names.includes(name));
  for (const { name, unavailable } of wanted) {
    const reason = unavailable?.();
    if (reason) console.error(`${name} is left out: ${reason}`);
  }
  const possible = wanted.filter(({ unavailable }) => !unavailable?.());
  return Array.from({ length: rounds }, (_, round) => String(seed + round)).flatMap((each) =>
    possible.map((scenario) => ({ scenario, seed: each, length })),
  );
}

/** Answers how many rounds could not be run at all; they are not in the file, so the next run tries them again. */
async function runAll(wish: Wish, file: RoundsFile): Promise<number> {
  let failed = 0;
  const left = roundsOf(wish).filter(({ scenario, ...round }) => !file.has({ scenario: scenario.name, ...round }));
  const line = async (): Promise<void> => {
    for (let next = left.shift(); next; next = left.shift()) {
      try {
        const report = await runRound(next.scenario, next.seed, next.length);
        file.add(report);
        console.log(wish.json ? JSON.stringify(report) : asText(report));
      } catch (error) {
        failed++;
        console.error(`${next.scenario.name} seed ${next.seed} could not be run:`, error);
      }
    }
  };
  await Promise.all(Array.from({ length: wish.parallel }, line));
  return failed;
}

function machine(): string {
  const [cpu] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  return `${new Date().toISOString().slice(0, 16)} UTC, ${cpus().length} x ${cpu?.model.trim()}, ${memory} GB, Node ${process.version}`;
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
  const file = new RoundsFile(wish.into);
  const failed = await runAll(wish, file);
  const all = new Set(roundsOf(wish).map(({ scenario, seed, length }) => `${scenario.name} ${seed} ${length}`));
  const reports = file.reports.filter(({ scenario, seed, length }) => all.has(`${scenario} ${seed} ${length}`));
  if (wish.markdown) console.log(`\n${asTable(reports, known)}\n\n${machine()}`);
  return failed > 0 || reports.some(({ violations }) => violations.length > 0) ? 1 : 0;
}

process.exit(await main());
