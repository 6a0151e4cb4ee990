/** Numbers of a target that no date or list could hold are refused when it is registered, not when its first row ends. */
import { describe, expect, it } from '@jest/globals';
import { resolveJobsOptions } from '../../src/jobs/jobs.options.js';
import { JobTargetsRegistry, type JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';

const DAY = 24 * 3600 * 1000;

function register(options: Partial<JobTargetOptions>): void {
  const registry = new JobTargetsRegistry(resolveJobsOptions({}, {}));
  registry.register({ name: 'test:work', lane: 'long', handler: async () => undefined, ...options });
}

describe('a target', () => {
  it.each([
    ['keep_dead_ms', Number.MAX_SAFE_INTEGER],
    ['keep_dead_ms', 3650 * DAY + 1],
    ['keep_done_ms', Number.MAX_SAFE_INTEGER],
    ['keep_done_ms', 3650 * DAY + 1],
    ['timeout_ms', 30 * DAY + 1],
    ['max_running', Number.MAX_SAFE_INTEGER],
    ['max_running', 10_001],
  ] as const)('is refused with %s: %d, before a row could end by it', (field, value) => {
    expect(() => register({ [field]: value })).toThrow(
      expect.objectContaining({
        code: 'invalid_target',
        field,
        message: expect.stringMatching(/expected a whole number from 1 to \d+, got \d+/),
      }),
    );
  });

  it.each([
    ['keep_dead_ms', 3650 * DAY],
    ['keep_done_ms', 3650 * DAY],
    ['timeout_ms', 30 * DAY],
    ['max_running', 10_000],
  ] as const)('may have %s: %d', (field, value) => {
    expect(() => register({ [field]: value })).not.toThrow();
  });
});
