/** What a tick does with due slots, and what becomes of a slot that starts late. */
import { describe, expect, it } from '@jest/globals';
import { parseCron } from '../../src/schedules/cron.js';
import { nextSlot, slotsOf } from '../../src/schedules/effective_slots.js';
import { checkDeclaration } from '../../src/schedules/schedule_declaration.js';
import {
  defaultPolicy,
  isLate,
  planTick,
  skipLateSlot,
  tickDelayMs,
  withoutSlot,
  type LateSlot,
  type MissedSlotPolicy,
} from '../../src/schedules/schedule_rules.js';

const MINUTE = 60_000;
const at = (time: string): Date => new Date(`2030-01-01T${time}Z`);

describe('the policy of a schedule that names none', () => {
  it.each([
    [1, 'skip'],
    [5 * MINUTE, 'skip'],
    [5 * MINUTE + 1, 'run_once'],
    [24 * 60 * MINUTE, 'run_once'],
  ])('with slots %d ms apart is %s', (interval, policy) => {
    expect(defaultPolicy(interval)).toBe(policy);
  });
});

describe('a tick', () => {
  const slots = parseCron('*/10 * * * *', 'UTC');
  const plan = (stored: string, now: string, policy: MissedSlotPolicy) =>
    planTick({ stored: at(stored), now: at(now), policy, slots });

  it.each(['run_once', 'skip'] as const)('in time enqueues the slot and goes to the next (%s)', (policy) => {
    expect(plan('00:10:00', '00:10:05', policy)).toEqual({
      newest: at('00:10:00'),
      enqueue: true,
      next: at('00:20:00'),
    });
  });

  it('run_once: enqueues the newest of several, however late', () => {
    expect(plan('00:10:00', '03:47:00', 'run_once')).toEqual({
      newest: at('03:40:00'),
      enqueue: true,
      skipped: { first: at('00:10:00'), last: at('03:30:00'), reason: 'missed' },
      next: at('03:50:00'),
    });
  });

  it('skip: drops everything when the newest is more than 60 s late', () => {
    expect(plan('00:10:00', '00:31:01', 'skip')).toEqual({
      newest: at('00:30:00'),
      enqueue: false,
      skipped: { first: at('00:10:00'), last: at('00:30:00'), reason: 'late' },
      next: at('00:40:00'),
    });
  });

  it('skip: enqueues the newest of several when it is 60 s late at most', () => {
    expect(plan('00:10:00', '00:31:00', 'skip')).toMatchObject({
      newest: at('00:30:00'),
      enqueue: true,
      skipped: { first: at('00:10:00'), last: at('00:20:00'), reason: 'missed' },
    });
  });

  it('enqueues a stored slot that the expression no longer has: it was promised', () => {
    expect(plan('00:07:00', '00:08:00', 'run_once')).toEqual({
      newest: at('00:07:00'),
      enqueue: true,
      next: at('00:10:00'),
    });
  });

  it('without a row for its slot skips that one with the others', () => {
    expect(withoutSlot(plan('00:10:00', '00:30:00', 'run_once'))).toEqual({
      newest: at('00:30:00'),
      enqueue: false,
      skipped: { first: at('00:10:00'), last: at('00:30:00'), reason: 'target_paused' },
      next: at('00:40:00'),
    });
  });

  it('inside a repeated hour goes on from the stored slot: the fixed time does not come again', () => {
    const berlin = parseCron('30 2 * * *', 'Europe/Berlin');
    const stored = new Date('2030-10-27T00:30:00Z');
    const done = planTick({ stored, now: new Date('2030-10-27T00:30:01Z'), policy: 'run_once', slots: berlin });
    expect(done).toMatchObject({ newest: stored, next: new Date('2030-10-28T01:30:00Z') });
    // The same tick, made by a pod that comes up within the second 02:30.
    const late = planTick({ stored, now: new Date('2030-10-27T01:40:00Z'), policy: 'run_once', slots: berlin });
    expect(late).toEqual(done);
  });

  it.each([
    [[], 15_000],
    [['00:00:20'], 15_000],
    [['00:00:09', '00:00:04'], 4_000],
    [['00:00:00'], 1],
  ])('with the next slots at %j sleeps %d ms', (next, ms) => {
    expect(tickDelayMs(at('00:00:00'), next.map(at))).toBe(ms);
  });
});

describe('a run that starts late', () => {
  const decide = (more: Partial<LateSlot>) =>
    skipLateSlot({ slot: at('00:10:00'), now: at('00:25:00'), policy: 'skip', newerWaits: false, ...more });
  const run = (from: string, minutes: number) => ({ at: at(from), ms: minutes * MINUTE });

  it('is late from 60 s on', () => {
    expect(isLate(at('00:10:00'), at('00:11:00'))).toBe(false);
    expect(isLate(at('00:10:00'), new Date(at('00:11:00').getTime() + 1))).toBe(true);
  });

  it('skip: is skipped as late', () => expect(decide({})).toBe('late'));
  it('run_once: runs when no newer slot waits', () => expect(decide({ policy: 'run_once' })).toBeUndefined());
  it('run_once: runs when no newer slot waits, whatever the run before did', () =>
    expect(decide({ policy: 'run_once', lastRun: run('00:00:00', 24) })).toBeUndefined());
  it('run_once: is skipped for a newer slot that waits', () =>
    expect(decide({ policy: 'run_once', newerWaits: true })).toBe('newer_slot_waiting'));

  it.each([
    ['took until a moment ago', run('00:00:00', 24.5), 'previous_slot_running'],
    ['took most of the wait', run('00:00:00', 12), 'previous_slot_running'],
    ['ended before the slot was due', run('00:00:00', 9), 'late'],
    ['ended within the grace time, long ago', run('00:00:00', 10.5), 'late'],
    ['starts only now, by the clock of another pod', run('00:25:00', 1), 'late'],
  ])('when the run before %s (%j) the reason is %s', (_, lastRun, reason) => {
    expect(decide({ lastRun })).toBe(reason);
  });
});

describe('the next slot of a row', () => {
  const row = { cron: '0 * * * *', timezone: 'UTC' };

  it('follows the override', () => {
    expect(nextSlot({ ...row, cron_override: '30 * * * *' }, at('00:00:00'))).toEqual(at('00:30:00'));
  });

  it('lies after every slot that was decided about, even for a clock that is behind', () => {
    expect(nextSlot({ ...row, last_slot_at: at('03:00:00') }, at('02:59:59'))).toEqual(at('04:00:00'));
    expect(nextSlot({ ...row, last_slot_at: at('03:00:00') }, at('07:30:00'))).toEqual(at('08:00:00'));
  });

  it.each([
    [{ cron: 'x' }, 'invalid_cron', 'cron'],
    [{ cron_override: '' }, 'invalid_cron', 'cron_override'],
    [{ timezone: 'x' }, 'invalid_timezone', 'timezone'],
  ])('of a row with %j is an error that names the field', (fault, code, field) => {
    expect(() => slotsOf({ ...row, ...fault })).toThrow(expect.objectContaining({ code, field }));
  });
});

describe('a declaration', () => {
  it('gets its defaults: zone of the module, 3 runs, the policy of its interval', () => {
    const handler = async (): Promise<void> => undefined;
    expect(checkDeclaration({ code: 'a', cron: '* * * * *', handler }, '+07:00')).toEqual({
      code: 'a',
      cron: '* * * * *',
      timezone: '+07:00',
      missed_slot_policy: 'skip',
      retry_count: 3,
    });
  });
});
