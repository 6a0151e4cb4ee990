// The command line of the simulations, as words. Pure.
export const USAGE = 'usage: npm run simulate -- leases [--pods N] [--partitions N] [--targets N] [--seed N] [--json]';

export interface Wish {
  pods: number;
  partitions: number;
  /** Rows of `job_targets`: each heartbeat reads them all. */
  targets: number;
  seed: number;
  json: boolean;
}

const MOST = { pods: 10_000, partitions: 4_096, targets: 10_000, seed: Number.MAX_SAFE_INTEGER } as const;
/** Below three pods a third of them is nobody. */
const LEAST = { pods: 3, partitions: 1, targets: 0, seed: 0 } as const;

export function parseArguments(words: readonly string[]): Wish | { fault: string } {
  const wish: Wish = { pods: 1_000, partitions: 4_096, targets: 0, seed: 1, json: false };
  const [name, ...left] = words;
  if (name !== 'leases')
    return { fault: name === undefined ? 'which simulation?' : `there is no simulation "${name}"` };
  for (let word = left.shift(); word !== undefined; word = left.shift()) {
    if (word === '--json') wish.json = true;
    else if (word === '--pods' || word === '--partitions' || word === '--targets' || word === '--seed') {
      const field = word.slice(2) as keyof typeof MOST;
      const text = left.shift();
      const value = text === undefined || text.trim() === '' ? NaN : Number(text);
      if (!Number.isSafeInteger(value) || value < LEAST[field] || value > MOST[field]) {
        return { fault: `${word}: expected a whole number from ${LEAST[field]} to ${MOST[field]}` };
      }
      wish[field] = value;
    } else return { fault: `there is no option "${word}"` };
  }
  return wish;
}
