import { describe, expect, it } from '@jest/globals';
import type { JobsEvent, RowRef } from '../../src/jobs/jobs.events.js';
import { linesOf } from '../../src/jobs/jobs.log.js';
import { logText } from '../../src/jobs/policy/log_text.js';

const ROW: RowRef = { id: 'a1', target: 'kafka:orders', code: 'order_updated', dedupe_key: 'order:7:3', attempts: 2 };

const only = (event: JobsEvent) => {
  const lines = linesOf(event);
  expect(lines).toHaveLength(1);
  return lines[0]!;
};

describe('the line of a run', () => {
  it('has the fields of the contract, in its order, and nothing else', () => {
    const { level, line } = only({ type: 'run_ended', row: ROW, result: 'answered', ms: 12.6 });
    expect(level).toBe('log');
    expect(JSON.stringify(line)).toBe(
      '{"msg":"job run","code":"order_updated","target":"kafka:orders","dedupe_key":"order:7:3","attempts":2,"duration_ms":13,"result":"answered"}',
    );
  });

  it('stays one line whatever a code or a dedupe key holds', () => {
    const row = { ...ROW, code: 'two\nlines"}', dedupe_key: 'a\r\u2028b' };
    const text = JSON.stringify(only({ type: 'run_ended', row, result: 'success', ms: 1 }).line);
    expect(text).not.toMatch(/[\n\r]/);
    expect(JSON.parse(text)).toMatchObject({ code: row.code, dedupe_key: row.dedupe_key });
  });

  it('does not grow with what others add to the event', () => {
    const event = {
      type: 'run_ended',
      row: { ...ROW, payload: 'secret' },
      result: 'success',
      ms: 1,
      payload: 'secret',
    };
    expect(JSON.stringify(linesOf(event as JobsEvent))).not.toContain('secret');
  });
});

describe('the other lines', () => {
  it('a DEAD row is an alert at error level', () => {
    const { level, line } = only({ type: 'dead', row: ROW, reason: 'said no' });
    expect(level).toBe('error');
    expect(line).toEqual({
      msg: 'job dead alert',
      code: ROW.code,
      target: ROW.target,
      dedupe_key: ROW.dedupe_key,
      attempts: 2,
      reason: 'said no',
    });
  });

  it('several skipped rows are several lines', () => {
    expect(linesOf({ type: 'skipped', rows: [ROW, ROW] })).toHaveLength(2);
  });

  it('a health problem is an error while it is there, and said to be over at log level', () => {
    const problem = { type: 'health_changed', problem: 'no_owner', detail: 'partitions 3' } as const;
    expect(only({ ...problem, state: 'began' })).toMatchObject({
      level: 'error',
      line: { msg: 'health problem', problem: 'no_owner', detail: 'partitions 3' },
    });
    expect(only({ ...problem, state: 'ended' }).level).toBe('log');
  });

  it.each<[string, JobsEvent]>([
    ['dead', { type: 'dead', row: ROW, reason: 'redis://me:hunter2@cache/0 refused' }],
    ['outcome_kept', { type: 'outcome_kept', target: 't', error: new Error('mongodb://me:hunter2@db/x is gone') }],
    ['round_failed', { type: 'round_failed', target: 't', partition: 1, error: new Error('mongodb://me:hunter2@db') }],
    ['loop_failed', { type: 'loop_failed', loop: 'heartbeat', error: new Error('mongodb://me:hunter2@db') }],
    ['on_dead_failed', { type: 'on_dead_failed', row: ROW, error: new Error('https://me:hunter2@host') }],
    ['target_paused', { type: 'target_paused', target: 't', by: 'engine', reason: 'kafka://me:hunter2@b1' }],
    ['redis_state', { type: 'redis_state', use: 'lossy', state: 'down', error: new Error('redis://:hunter2@c') }],
    ['schedule_broken', { type: 'schedule_broken', code: 'c', error: new Error('x://me:hunter2@host') }],
  ])('%s never tells the password of a URL', (_, event) => {
    const text = JSON.stringify(linesOf(event));
    expect(text).not.toContain('hunter2');
    expect(text).toContain('***@');
  });

  it.each<[string, JobsEvent]>([
    ['enqueued', { type: 'enqueued', rows: [{ target: 't', partition: 1, lane: 'fast' }] }],
    ['run_started', { type: 'run_started', target: 't', rows: 1 }],
    ['claimed', { type: 'claimed', rows: 1, conflicts: 0 }],
  ])('%s, which happens for every row beside its run, says nothing', (_, event) => {
    expect(linesOf(event)).toEqual([]);
  });
});

describe('an error text in a line', () => {
  it.each([
    ['mongodb://user:pa55@h1:1,h2:2/db?x=1 timed out', 'mongodb://***@h1:1,h2:2/db?x=1 timed out'],
    ['redis://:pa55@cache', 'redis://***@cache'],
    ['a://u:p@ss/pa55@host and b://u:pa55@host', 'a://***@host and b://***@host'],
    ['http://host/path', 'http://host/path'],
    ['mail me@host', 'mail me@host'],
  ])('%s', (given, told) => expect(logText(new Error(given))).toBe(told));

  it('is cut to 200 characters, without half a character at its end', () => {
    expect(logText('x'.repeat(5_000))).toHaveLength(200);
    expect(logText(`${'x'.repeat(198)}😀😀`).isWellFormed()).toBe(true);
  });

  it('masks a password that the cut would have run through', () => {
    const text = logText(`${'x'.repeat(150)} mongodb://user:${'p'.repeat(300)}@host`);
    expect(text).not.toContain('pp');
  });

  it('has an answer for what is no error', () => {
    expect(logText(undefined)).toBe('undefined');
    expect(
      logText({
        toString: () => {
          throw new Error('no');
        },
      }),
    ).toBe('an error that has no text');
  });
});
