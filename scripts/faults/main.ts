// `npm run faults -- <scenario…> | all [--seed N] [--rounds N] …`: kills, stalls, cuts and lies to real pods, then judges
// what they did (docs/faults.md). A report on stdout as soon as a round is over (with `--json` one JSON object a line),
// with `--markdown` a table of all at the end. The exit code is 1 when an invariant was broken or something that was
// asked for could not be tried.
import { cpus, totalmem } from 'node:os';
import { codeUnderTest } from '../../test/faults/bench/pod_build.js';
import { runRound } from '../../test/faults/bench/run_round.js';
import { SCENARIOS } from '../../test/faults/scenarios/index.js';
import { asEnvironment, up } from '../services/services.js';
import { command } from './command.js';

function machine(): string {
  const [cpu] = cpus();
  const memory = Math.round(totalmem() / 2 ** 30);
  const now = new Date().toISOString().slice(0, 16);
  return `${now} UTC, ${cpus().length} x ${cpu?.model.trim()}, ${memory} GB, Node ${process.version}, code ${codeUnderTest()}`;
}

async function startServices(): Promise<void> {
  const addresses = await up(['mongo'], (line) => void process.stderr.write(`${line}\n`));
  Object.assign(process.env, asEnvironment(addresses));
}

const code = await command(process.argv.slice(2), {
  scenarios: SCENARIOS,
  code: codeUnderTest(),
  prepare: startServices,
  run: runRound,
  say: (text) => console.log(text),
  complain: (text) => console.error(text),
  machine,
});
process.exit(code);
