// The command line of the fault bench, as words. Pure.
export const USAGE = 'usage: npm run faults -- <scenario…> | all [--seed N] [--rounds N] [--length N] [--json]';

export interface Wish {
  names: string[];
  seed: number;
  /** Rounds of each scenario: seeds `seed`, `seed + 1`, … */
  rounds: number;
  /** How much of everything a round does; 1 is what the tests run. */
  length: number;
  json: boolean;
}

export function parseArguments(words: readonly string[], known: readonly string[]): Wish | { fault: string } {
  const wish: Wish = { names: [], seed: 1, rounds: 1, length: 1, json: false };
  const left = [...words];
  for (let word = left.shift(); word !== undefined; word = left.shift()) {
    if (word === '--json') wish.json = true;
    else if (word === '--seed' || word === '--rounds' || word === '--length') {
      const value = Number(left.shift());
      if (!Number.isSafeInteger(value) || value < 1) return { fault: `${word}: expected a whole number from 1` };
      wish[word.slice(2) as 'seed' | 'rounds' | 'length'] = value;
    } else if (word === 'all') wish.names.push(...known);
    else if (known.includes(word)) wish.names.push(word);
    else return { fault: `there is no scenario "${word}"` };
  }
  if (wish.names.length === 0) return { fault: 'which scenario?' };
  wish.names = [...new Set(wish.names)];
  return wish;
}
