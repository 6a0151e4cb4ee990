/** How often a row is tried: its code's rules before its target's. */
import { describe, expect, it } from '@jest/globals';
import { JOBS_DEFAULTS } from '../../src/jobs/jobs.options.js';
import { JobTargetsRegistry, rulesFor, type CodeRules } from '../../src/jobs/targets/job_targets.registry.js';

const TEN = { delays_ms: Array.from({ length: 10 }, () => 1_000), jitter: 0 };

function attempts(own: CodeRules): number {
  const registry = new JobTargetsRegistry(JOBS_DEFAULTS);
  const handler = () => Promise.resolve();
  registry.register({ name: 't', lane: 'fast', max_attempts: 4, codes: { own }, handler });
  return rulesFor(registry.require('t'), 'own').max_attempts;
}

describe('the attempts of a code', () => {
  it.each<[condition: string, own: CodeRules, expected: number]>([
    ['with a list of ten delays are eleven', { retry: TEN }, 11],
    ['are what it says itself', { retry: TEN, max_attempts: 3 }, 3],
    ["with delays that double are its target's", { retry: { base_ms: 10, cap_ms: 100 } }, 4],
    ["without rules of its own are its target's", {}, 4],
  ])('%s', (_, own, expected) => {
    expect(attempts(own)).toBe(expected);
  });
});
