// The command line of the benches, as words. Pure.
export const USAGE = 'usage: npm run bench -- <name…> | all [--json | --markdown] [--quick] [--scale F] [--rounds N]';

export interface Wish {
  names: string[];
  /** Default: text for a terminal. */
  format: 'text' | 'json' | 'markdown';
  quick: boolean;
  scale: number;
  rounds: number;
}

const QUICK_ROUNDS = 1;
/** Fewer make no median worth telling. */
const ROUNDS = 5;

export function parseArguments(words: readonly string[], known: readonly string[]): Wish | { fault: string } {
  const wish: Wish = { names: [], format: 'text', quick: false, scale: 1, rounds: 0 };
  const left = [...words];
  for (let word = left.shift(); word !== undefined; word = left.shift()) {
    if (word === '--json' || word === '--markdown') wish.format = word === '--json' ? 'json' : 'markdown';
    else if (word === '--quick') wish.quick = true;
    else if (word === '--scale' || word === '--rounds') {
      const value = Number(left.shift());
      const valid = word === '--scale' ? value > 0 && value <= 100 : Number.isInteger(value) && value >= 1;
      if (!valid) return { fault: `${word}: expected a number above zero` };
      wish[word === '--scale' ? 'scale' : 'rounds'] = value;
    } else if (word === 'all') wish.names.push(...known);
    else if (known.includes(word)) wish.names.push(word);
    else return { fault: `there is no bench "${word}"` };
  }
  if (wish.names.length === 0) return { fault: 'which bench?' };
  wish.names = [...new Set(wish.names)];
  wish.rounds ||= wish.quick ? QUICK_ROUNDS : ROUNDS;
  return wish;
}
