// The command line of the fault bench, as words. Pure.
export const USAGE =
  'usage: npm run faults -- <scenario…> | all [--seed N] [--rounds N] [--length N] [--parallel N] [--into FILE] [--markdown | --json]';

export interface Wish {
  names: string[];
  /** Those of them that were named one by one: they must not be left out. */
  asked: string[];
  seed: number;
  /** Rounds of each scenario: seeds `seed`, `seed + 1`, … */
  rounds: number;
  /** How much of everything a round does; 1 is what the tests run. */
  length: number;
  /** Rounds side by side, each with a database, pods and ports of its own. */
  parallel: number;
  /** Reports are added to this file, and rounds that stand in it already are not run again. */
  into?: string;
  /** A table of all rounds at the end. */
  markdown: boolean;
  json: boolean;
}

const NUMBERS = ['--seed', '--rounds', '--length', '--parallel'] as const;
const isNumber = (word: string): word is (typeof NUMBERS)[number] => (NUMBERS as readonly string[]).includes(word);

export function parseArguments(words: readonly string[], known: readonly string[]): Wish | { fault: string } {
  const wish: Wish = { names: [], asked: [], seed: 1, rounds: 1, length: 1, parallel: 1, markdown: false, json: false };
  const left = [...words];
  for (let word = left.shift(); word !== undefined; word = left.shift()) {
    if (word === '--json') wish.json = true;
    else if (word === '--markdown') wish.markdown = true;
    else if (word === '--into') {
      const file = left.shift();
      if (!file || file.startsWith('--')) return { fault: '--into: expected the name of a file' };
      wish.into = file;
    } else if (isNumber(word)) {
      const value = Number(left.shift());
      if (!Number.isSafeInteger(value) || value < 1) return { fault: `${word}: expected a whole number from 1` };
      wish[word.slice(2) as 'seed' | 'rounds' | 'length' | 'parallel'] = value;
    } else if (word === 'all') wish.names.push(...known);
    else if (known.includes(word)) {
      wish.names.push(word);
      wish.asked.push(word);
    } else return { fault: `there is no scenario "${word}"` };
  }
  if (wish.names.length === 0) return { fault: 'which scenario?' };
  // What reads one JSON object a line would stumble over the table.
  if (wish.json && wish.markdown) return { fault: '--json and --markdown: one of them' };
  wish.names = [...new Set(wish.names)];
  return wish;
}
