/** A short round of every scenario of the fault bench. Longer ones: `npm run faults` (docs/faults.md). */
import { describe, expect, it } from '@jest/globals';
import { runRound } from './bench/run_round.js';
import { SCENARIOS } from './scenarios/index.js';

const SEED = process.env['FAULTS_SEED'] ?? '1';

describe('the guarantees hold', () => {
  for (const { name, unavailable } of SCENARIOS) {
    const reason = unavailable?.();
    if (reason) it(`${name} cannot be tried here: ${reason}`, () => {});
  }

  it.each(SCENARIOS.filter(({ unavailable }) => !unavailable?.()))(
    'through $name: $about',
    async (scenario) => {
      const { violations } = await runRound(scenario, SEED);
      expect(violations).toEqual([]);
    },
    400_000,
  );
});
