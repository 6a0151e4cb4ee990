/** What a host may put into the engine's options, and what it is told when it may not. */
import { describe, expect, it } from '@jest/globals';
import { BootError } from '../../src/common/errors.js';
import { checkOptions } from '../../src/jobs/options_check.js';
import { JOBS_DEFAULTS, resolveJobsOptions, type JobsModuleOptions } from '../../src/jobs/jobs.options.js';

/** Options as a host without types would write them. */
function faultsOf(raw: unknown): { lines: string[]; error: BootError } {
  try {
    resolveJobsOptions(raw as JobsModuleOptions, {});
  } catch (error) {
    if (error instanceof BootError) return { lines: error.message.split('\n'), error };
    throw error;
  }
  throw new Error('these options were accepted');
}

describe('the defaults', () => {
  const config = resolveJobsOptions({}, {});

  it('are the numbers of the reference', () => {
    expect(config.partitions).toBe(64);
    expect(config.fast_lane.batch_size).toBe(100);
    expect(config.fast_lane.idle_poll_ms).toEqual([1_000, 2_000, 5_000]);
    expect(config.retry.delays_ms).toEqual([60_000, 120_000, 240_000, 480_000, 960_000]);
    expect(config.lease.ttl_ms).toBe(30_000);
    expect(config.lease.heartbeat_ms).toBe(10_000);
    expect(config.lease.worker_ttl_ms).toBe(30_000);
    expect(config.pause.probe_ms).toBe(30_000);
  });

  it('are all there when no options are given at all', () => {
    expect(resolveJobsOptions(undefined, {})).toEqual(JOBS_DEFAULTS);
  });

  it('stay as they are beside a value that was given in the same group, and an undefined one changes nothing', () => {
    const { lease } = resolveJobsOptions({ lease: { ttl_ms: 40_000, heartbeat_ms: undefined } }, {});
    expect(lease).toEqual({ ...JOBS_DEFAULTS.lease, ttl_ms: 40_000 });
    expect(JOBS_DEFAULTS.lease.ttl_ms).toBe(30_000);
  });
});

describe('an option that cannot be used', () => {
  it.each([
    [{ partitons: 8 }, 'jobs.partitons: unknown option, did you mean partitions?'],
    [{ lease: { heartbeat: 1 } }, 'jobs.lease.heartbeat: unknown option, did you mean lease.heartbeat_ms?'],
    [{ colour: 'blue' }, 'jobs.colour: unknown option'],
  ])('that nobody knows (%j) is refused, with a hint when one is near', (raw, line) => {
    expect(faultsOf(raw).lines).toEqual([line]);
  });

  it.each([
    [{ partitions: 0 }, 'jobs.partitions: expected a whole number from 1 to 4096, got 0'],
    [{ partitions: 1.5 }, 'jobs.partitions: expected a whole number from 1 to 4096, got 1.5'],
    [{ partitions: '64' }, 'jobs.partitions: expected a whole number from 1 to 4096, got "64"'],
    [{ partitions: Number.NaN }, 'jobs.partitions: expected a whole number from 1 to 4096, got null'],
    [{ partitions: null }, 'jobs.partitions: expected a whole number from 1 to 4096, got null'],
    [{ partitions: 64n }, 'jobs.partitions: expected a whole number from 1 to 4096, got bigint'],
    [{ retry: { jitter: 1.1 } }, 'jobs.retry.jitter: expected a number from 0 to 1, got 1.1'],
    [
      { retry: { delays_ms: [] } },
      'jobs.retry.delays_ms: expected a list of whole numbers from 0 to 31536000000, got []',
    ],
    [{ workers: 'maybe' }, 'jobs.workers: expected one of on, off, manual, got "maybe"'],
    [{ context: { current: () => undefined } }, 'jobs.context: expected an object with current and run, got {}'],
    [{ context: () => undefined }, 'jobs.context: expected an object with current and run, got a function'],
    [{ lease: 30 }, 'jobs.lease: expected an object, got 30'],
    [{ lease: null }, 'jobs.lease: expected an object, got null'],
    [{ lease: [] }, 'jobs.lease: expected an object, got []'],
    ['fast', 'jobs: expected an object, got "fast"'],
  ])('because of its value (case %#) is refused by its path, with what was expected and what came', (raw, line) => {
    expect(faultsOf(raw).lines).toEqual([line]);
  });

  it('is one of a list: every fault is told at once, and the error names the first', () => {
    const { lines, error } = faultsOf({
      partitions: 0,
      fast_lane: { batch_size: -1, batchsize: 3 },
      retry: { jitter: 2 },
    });
    expect(lines).toHaveLength(4);
    expect(new Set(lines.map((line) => line.split(':')[0]))).toEqual(
      new Set(['jobs.fast_lane.batch_size', 'jobs.fast_lane.batchsize', 'jobs.partitions', 'jobs.retry.jitter']),
    );
    expect(error.code).toBe('invalid_options');
    expect(error.field).toBe(lines[0]?.split(':')[0]);
  });
});

describe('options that contradict each other', () => {
  it('a heartbeat of exactly half the lease is the slowest allowed', () => {
    const at = (heartbeat_ms: number): JobsModuleOptions => ({
      lease: { ttl_ms: 30_000, heartbeat_ms, margin_ms: 0 },
      fast_lane: { timeout_ms: 1_000 },
    });
    expect(resolveJobsOptions(at(15_000), {}).lease.heartbeat_ms).toBe(15_000);
    expect(faultsOf(at(15_001)).lines).toEqual([
      'jobs.lease.heartbeat_ms: expected at most half of lease.ttl_ms (15000), got 15001',
    ]);
  });

  it('a handler may run as long as a lease lives right before its heartbeat, less the margin, and no longer', () => {
    const at = (timeout_ms: number): JobsModuleOptions => ({ fast_lane: { timeout_ms } });
    expect(resolveJobsOptions(at(19_000), {}).fast_lane.timeout_ms).toBe(19_000);
    expect(faultsOf(at(19_001)).lines).toEqual([
      'jobs.fast_lane.timeout_ms: expected at most lease.ttl_ms - lease.heartbeat_ms - lease.margin_ms (19000), got 19001',
    ]);
  });

  it('a claim outlives its first renewal, which comes before a third of the lease is over', () => {
    const at = (lease_ms: number, renew_ms: number): JobsModuleOptions => ({ long_lane: { lease_ms, renew_ms } });
    expect(resolveJobsOptions(at(3_000, 1_000), {}).long_lane.renew_ms).toBe(1_000);
    expect(faultsOf(at(3_000, 1_001)).lines).toEqual([
      'jobs.long_lane.renew_ms: expected at most a third of long_lane.lease_ms (1000), got 1001',
    ]);
    expect(faultsOf(at(1_200, 200)).lines).toEqual([
      'jobs.long_lane.lease_ms: expected more than long_lane.renew_ms + lease.margin_ms (1200), got 1200',
    ]);
  });

  it('both contradictions are told at once', () => {
    expect(faultsOf({ lease: { ttl_ms: 10_000, heartbeat_ms: 9_000 } }).lines).toHaveLength(2);
  });
});

describe('the environment', () => {
  it('JOBS_WORKERS=off makes a pod that only enqueues', () => {
    expect(resolveJobsOptions({}, { JOBS_WORKERS: 'off' }).workers).toBe('off');
  });

  it.each([undefined, '', 'on', 'OFF'])('JOBS_WORKERS=%s leaves the loops on', (value) => {
    expect(resolveJobsOptions({}, { JOBS_WORKERS: value }).workers).toBe('on');
  });

  it('gives way to an option set in code', () => {
    expect(resolveJobsOptions({ workers: 'manual' }, { JOBS_WORKERS: 'off' }).workers).toBe('manual');
    expect(resolveJobsOptions({ workers: undefined }, { JOBS_WORKERS: 'off' }).workers).toBe('off');
  });
});

describe('a table of rules of somebody else', () => {
  const rules = { loud: { boolean: true }, 'group.size': { int: [1, 9] } } as const;
  const defaults = { loud: false, group: { size: 1 } };

  it('is checked under the name it was given', () => {
    expect(checkOptions('kafka', { loud: 1, group: { size: 10 } }, defaults, rules).errors).toEqual([
      'kafka.loud: expected true or false, got 1',
      'kafka.group.size: expected a whole number from 1 to 9, got 10',
    ]);
  });

  it('gives a value of its own: neither the defaults nor the raw options are changed', () => {
    const raw = { group: { size: 5 } };
    const { value } = checkOptions('kafka', raw, defaults, rules);
    value.group.size = 7;
    expect([defaults.group.size, raw.group.size]).toEqual([1, 5]);
  });
});

describe('names that every object inherits', () => {
  it.each(['constructor', 'toString', 'hasOwnProperty'])('%s is an unknown option', (name) => {
    expect(() => resolveJobsOptions({ [name]: 1 } as object, {})).toThrow(`jobs.${name}: unknown option`);
  });
});

describe('the address of Redis', () => {
  it('comes from the environment, and an empty one means there is none', () => {
    const env = { QUEUE_REDIS_URL: 'redis://127.0.0.1:6379' };
    expect(resolveJobsOptions({}, env).redis.url).toBe('redis://127.0.0.1:6379');
    expect(resolveJobsOptions({ redis: { url: '' } }, env).redis.url).toBe('');
    expect(resolveJobsOptions({}, {}).redis.url).toBe('');
  });

  it.each([{ redis: { url: 'http://:geheim@h' } }, { redis: { url: 'geheim' } }, { redis: 'redis://:geheim@h' }])(
    'that cannot be used is refused without being repeated: it may hold a password',
    (raw) => {
      const { lines } = faultsOf(raw);
      expect(lines[0]).toMatch(/^jobs\.redis/);
      expect(lines.join()).not.toContain('geheim');
    },
  );
});
