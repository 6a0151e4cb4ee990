// What `npm run faults` does with its words: which rounds, in which order, what is told, and the exit code. The rounds
// themselves, the services and the output are given, so that it can be tried without any.
import type { RoundReport, Scenario } from '../../test/faults/bench/scenario.types.js';
import { parseArguments, USAGE, type Wish } from './arguments.js';
import { asTable, asText } from './report.js';
import { RoundsFile } from './rounds_file.js';

export interface Surroundings {
  readonly scenarios: readonly Scenario[];
  /** Hash of the code under test: rounds of other code do not count. */
  readonly code: string;
  /** Before the first round. */
  prepare(): Promise<unknown>;
  run(scenario: Scenario, seed: string, length: number): Promise<RoundReport>;
  say(text: string): void;
  complain(text: string): void;
  /** Where the rounds ran, in a line. */
  machine(): string;
}

/** 0: everything asked for was tried and held. 1: something broke, or could not be tried. 2: not understood. */
export async function command(words: readonly string[], around: Surroundings): Promise<0 | 1 | 2> {
  const known = around.scenarios.map(({ name }) => name);
  const wish = parseArguments(words, known);
  if ('fault' in wish) {
    const list = around.scenarios.map(({ name, about }) => `  ${name.padEnd(24)} ${about}`);
    around.complain(`${wish.fault}\n${USAGE}\n${list.join('\n')}`);
    return 2;
  }
  const leftOut = unavailable(wish, around);
  await around.prepare();
  const file = new RoundsFile(wish.into, around.code);
  if (file.ofOtherCode > 0)
    around.complain(`${file.ofOtherCode} rounds in ${wish.into} are of other code and do not count`);
  const rounds = roundsOf(wish, around).filter(({ scenario }) => !leftOut.has(scenario.name));
  const failed = await runAll(rounds, { wish, file, around });
  const reports = rounds.flatMap((round) => file.find(nameOf(round)) ?? []);
  if (wish.markdown) around.say(`\n${asTable(reports, known, leftOut)}\n\n${around.machine()}`);
  const missed = wish.asked.some((name) => leftOut.has(name));
  return missed || failed > 0 || reports.some(({ violations }) => violations.length > 0) ? 1 : 0;
}

/** Scenarios that this machine cannot try, and why. */
function unavailable({ names }: Wish, { scenarios, complain }: Surroundings): Map<string, string> {
  const wanted = scenarios.filter(({ name }) => names.includes(name));
  const reasons = new Map(wanted.map(({ name, unavailable: ask }) => [name, ask?.()]));
  const leftOut = new Map([...reasons].flatMap(([name, reason]) => (reason ? [[name, reason] as const] : [])));
  for (const [name, reason] of leftOut) complain(`${name} is left out: ${reason}`);
  return leftOut;
}

interface Round {
  scenario: Scenario;
  seed: string;
  length: number;
}

const nameOf = ({ scenario, ...round }: Round): { scenario: string; seed: string; length: number } => ({
  scenario: scenario.name,
  ...round,
});

/** Seed by seed, so that an interrupted run has tried a little of everything. */
function roundsOf({ names, seed, rounds, length }: Wish, { scenarios }: Surroundings): Round[] {
  const wanted = scenarios.filter(({ name }) => names.includes(name));
  return Array.from({ length: rounds }, (_, round) => String(seed + round)).flatMap((each) =>
    wanted.map((scenario) => ({ scenario, seed: each, length })),
  );
}

/** Answers how many rounds could not be run at all; they are not in the file, so the next run tries them again. */
async function runAll(
  rounds: readonly Round[],
  { wish, file, around }: { wish: Wish; file: RoundsFile; around: Surroundings },
): Promise<number> {
  let failed = 0;
  const left = rounds.filter((round) => !file.find(nameOf(round)));
  const line = async (): Promise<void> => {
    for (let next = left.shift(); next; next = left.shift()) {
      try {
        const report = await around.run(next.scenario, next.seed, next.length);
        file.add(report);
        around.say(wish.json ? JSON.stringify(report) : asText(report));
      } catch (error) {
        failed++;
        const reason = error instanceof Error ? error.stack : String(error);
        around.complain(`${next.scenario.name} seed ${next.seed} could not be run: ${reason}`);
      }
    }
  };
  await Promise.all(Array.from({ length: wish.parallel }, line));
  return failed;
}
