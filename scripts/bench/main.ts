// `npm run bench -- <name…> | all [--json | --markdown] [--quick] [--scale F] [--rounds N]`: every figure is a ratio measured in this
// run (measure.ts). The exit code is 1 when a figure that must be reached was not; a quick run never fails on a figure.
import { up } from '../services/services.js';
import type { Bench, BenchContext } from './bench.types.js';
import { parseArguments, USAGE } from './arguments.js';
import { BENCHES } from './benches.js';
import type { BenchResult } from './measure.js';
import { asMarkdown, asText } from './report.js';

const PRINT = { text: asText, markdown: asMarkdown, json: (result: BenchResult): string => JSON.stringify(result) };

async function main(): Promise<number> {
  const wish = parseArguments(process.argv.slice(2), [...BENCHES.keys()]);
  if ('fault' in wish) {
    console.error(`${wish.fault}\n${USAGE}\n${[...BENCHES.values()].map(describe).join('\n')}`);
    return 2;
  }
  const say = (line: string): void => void process.stderr.write(`${line}\n`);
  const { mongoUri, kafkaBrokers, redisUrl } = await up(['mongo', 'kafka', 'redis'], say);
  const context: BenchContext = {
    mongoUri: mongoUri!,
    kafkaBrokers: kafkaBrokers!,
    redisUrl: redisUrl!,
    quick: wish.quick,
    scale: wish.scale,
    rounds: { warmups: 1, rounds: wish.rounds },
    say,
    size: (full, quick) => Math.ceil(wish.quick ? quick : full * wish.scale),
  };
  let missed = 0;
  for (const name of wish.names) {
    const result = await runBench(BENCHES.get(name)!, context);
    console.log(PRINT[wish.format](result));
    missed += result.ratios.filter(({ reached }) => reached === false).length;
  }
  return missed > 0 && !wish.quick ? 1 : 0;
}

async function runBench(bench: Bench, context: BenchContext): Promise<BenchResult> {
  context.say(`${bench.name}: ${bench.about}`);
  return { bench: bench.name, ...(await bench.run(context)) };
}

const describe = ({ name, about }: Bench): string => `  ${name.padEnd(16)} ${about}`;

// Peers keep timers and sockets of their own beyond their stop.
process.exit(await main());
