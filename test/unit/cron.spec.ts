/** Cron expressions: what is refused, which instants are slots, and what happens where clocks jump. */
import { describe, expect, it } from '@jest/globals';
import { InvalidInputError } from '../../src/common/errors.js';
import { parseCron } from '../../src/schedules/cron.js';

const at = (iso: string): Date => new Date(iso);

/** The slots after an instant, as ISO strings without the milliseconds. */
function slots(cron: string, zone: string, after: string, count: number): string[] {
  const parsed = parseCron(cron, zone);
  const found: string[] = [];
  for (let slot = at(after); found.length < count;) {
    slot = parsed.next(slot);
    found.push(slot.toISOString().replace('.000Z', 'Z'));
  }
  return found;
}

function faultOf(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    return error;
  }
}

describe('an expression', () => {
  it.each([
    [''],
    ['   '],
    ['* * * *'],
    ['* * * * * * *'],
    ['60 * * * *'],
    ['0 24 * * *'],
    ['0 0 32 * *'],
    ['0 0 0 * *'],
    ['0 0 * 13 *'],
    ['0 0 * * 8'],
    ['*/0 * * * *'],
    ['*/61 * * * *'],
    ['5-1 * * * *'],
    ['1,,2 * * * *'],
    ['1.5 * * * *'],
    ['-5 * * * *'],
    ['a b c d e'],
    ['0 0 * * MON#6'],
    ['@daily'],
    ['@reboot'],
    ['2030-01-23T00:00:00'],
    ['* * * * *'.padEnd(300) + '*'],
  ])('that is malformed (%j) is refused as invalid_cron, naming its field', (cron) => {
    const error = faultOf(() => parseCron(cron, 'UTC', { cron: 'cron_override', timezone: 'timezone' }));
    expect(error).toBeInstanceOf(InvalidInputError);
    expect(error).toMatchObject({ code: 'invalid_cron', field: 'cron_override' });
  });

  it.each([[undefined], [null], [5], [['* * * * *']], [{ $ne: '' }]])(
    'that is no text (%j) is refused as invalid_cron',
    (cron) => {
      expect(faultOf(() => parseCron(cron, 'UTC'))).toMatchObject({ code: 'invalid_cron', field: 'cron' });
    },
  );

  it.each(['0 0 30 2 *', '0 0 31 2,4,6,9,11 *', '0 0 31W 2 *'])('that never fires (%s) is refused', (cron) => {
    expect(faultOf(() => parseCron(cron, 'UTC'))).toMatchObject({ code: 'invalid_cron' });
  });

  it('that fires less often than every five years is refused', () => {
    expect(faultOf(() => parseCron('0 0 29 2 +MON', 'UTC'))).toMatchObject({ code: 'invalid_cron' });
  });

  it('that fires on 29 February only is taken in any year, and waits for it', () => {
    expect(slots('0 0 29 2 *', 'UTC', '2030-01-01T00:00:00Z', 2)).toEqual([
      '2032-02-29T00:00:00Z',
      '2036-02-29T00:00:00Z',
    ]);
    expect(slots('0 0 29 2 *', 'UTC', '2096-03-01T00:00:00Z', 1)).toEqual(['2104-02-29T00:00:00Z']);
  });

  it.each([
    ['seconds', '*/20 * * * * *', ['2030-01-01T00:00:20Z', '2030-01-01T00:00:40Z', '2030-01-01T00:01:00Z']],
    ['names', '0 0 * feb fri', ['2030-02-01T00:00:00Z', '2030-02-08T00:00:00Z', '2030-02-15T00:00:00Z']],
    ['the last day', '0 0 L * *', ['2030-01-31T00:00:00Z', '2030-02-28T00:00:00Z', '2030-03-31T00:00:00Z']],
    ['the last Friday', '0 0 * * FRI#L', ['2030-01-25T00:00:00Z', '2030-02-22T00:00:00Z', '2030-03-29T00:00:00Z']],
    ['the second Monday', '0 0 * * MON#2', ['2030-01-14T00:00:00Z', '2030-02-11T00:00:00Z', '2030-03-11T00:00:00Z']],
    ['Sunday as 7', '0 0 * * 7', ['2030-01-06T00:00:00Z', '2030-01-13T00:00:00Z', '2030-01-20T00:00:00Z']],
    ['day or weekday', '0 0 3 * SAT', ['2030-01-03T00:00:00Z', '2030-01-05T00:00:00Z', '2030-01-12T00:00:00Z']],
    [
      'lists, ranges and steps',
      '5,10-20/5 0 * * *',
      ['2030-01-01T00:05:00Z', '2030-01-01T00:10:00Z', '2030-01-01T00:15:00Z'],
    ],
  ])('with %s fires when it says', (_, cron, expected) => {
    expect(slots(cron, 'UTC', '2030-01-01T00:00:00Z', 3)).toEqual(expected);
  });

  it('is read at a fixed offset: 09:00 at +07:00 is 02:00 UTC', () => {
    expect(slots('0 9 * * *', '+07:00', '2030-01-01T02:00:00Z', 1)).toEqual(['2030-01-02T02:00:00Z']);
    expect(slots('0 9 * * *', '-03:30', '2030-01-01T00:00:00Z', 1)).toEqual(['2030-01-01T12:30:00Z']);
  });

  it.each([
    ['*/5 * * * *', 5],
    ['*/5 9-17 * * *', 5],
    ['*/7 * * * *', 7],
    ['0,1 0 * * *', 1439],
    ['0 9 * * *', 1440],
  ])('%s usually comes again after %d min', (cron, minutes) => {
    expect(parseCron(cron, 'UTC').interval_ms).toBe(minutes * 60_000);
  });
});

describe('a time zone', () => {
  it.each([[''], ['Mars/Olympus'], ['+7:00'], ['+15:00'], ['+07:60'], ['GMT+7'], [undefined], [7], [{}]])(
    'that nobody knows (%j) is refused as invalid_timezone',
    (zone) => {
      expect(faultOf(() => parseCron('* * * * *', zone))).toMatchObject({
        code: 'invalid_timezone',
        field: 'timezone',
      });
    },
  );

  it.each(['Asia/Bangkok', 'europe/berlin', 'UTC', '+07:00', '-12:00', '+14:00'])('%s is known', (zone) => {
    expect(parseCron('* * * * *', zone).next(at('2030-01-01T00:00:00Z'))).toEqual(at('2030-01-01T00:01:00Z'));
  });
});

describe('a slot in a gap runs once, right after it', () => {
  it.each([
    ['Europe/Berlin', '30 2 * * *', '2030-03-30T12:00:00Z', ['2030-03-31T01:00:00Z', '2030-04-01T00:30:00Z']],
    ['America/Santiago', '0 0 * * *', '2024-09-07T12:00:00Z', ['2024-09-08T04:00:00Z', '2024-09-09T03:00:00Z']],
    ['Africa/Cairo', '30 0 * * *', '2024-04-25T12:00:00Z', ['2024-04-25T22:00:00Z', '2024-04-26T21:30:00Z']],
    ['Asia/Beirut', '0 0 * * *', '2024-03-30T12:00:00Z', ['2024-03-30T22:00:00Z', '2024-03-31T21:00:00Z']],
    ['Australia/Lord_Howe', '15 2 * * *', '2024-10-05T12:00:00Z', ['2024-10-05T15:30:00Z', '2024-10-06T15:15:00Z']],
    // A whole day that did not exist.
    ['Pacific/Apia', '0 12 30 12 *', '2011-12-01T00:00:00Z', ['2011-12-30T10:00:00Z', '2012-12-29T22:00:00Z']],
  ])('%s: %s', (zone, cron, after, expected) => {
    expect(slots(cron, zone, after, 2)).toEqual(expected);
  });

  it('also when the hour is one of several', () => {
    expect(slots('0 0,12 * * *', 'America/Santiago', '2024-09-08T03:00:00Z', 2)).toEqual([
      '2024-09-08T04:00:00Z',
      '2024-09-08T15:00:00Z',
    ]);
  });

  it('and several slots of one gap are one run', () => {
    expect(slots('*/10 0 * * *', 'Asia/Beirut', '2024-03-30T12:00:00Z', 2)).toEqual([
      '2024-03-30T22:00:00Z',
      '2024-03-31T21:00:00Z',
    ]);
    expect(slots('*/15 * * * *', 'Europe/Berlin', '2030-03-31T00:40:00Z', 4)).toEqual([
      '2030-03-31T00:45:00Z',
      '2030-03-31T01:00:00Z',
      '2030-03-31T01:15:00Z',
      '2030-03-31T01:30:00Z',
    ]);
  });
});

describe('a slot in an overlap', () => {
  it.each([
    ['Europe/Berlin', '30 2 * * *', '2030-10-26T12:00:00Z', ['2030-10-27T00:30:00Z', '2030-10-28T01:30:00Z']],
    ['America/Santiago', '30 23 * * *', '2024-04-06T12:00:00Z', ['2024-04-07T02:30:00Z', '2024-04-08T03:30:00Z']],
    ['Australia/Lord_Howe', '45 1 * * *', '2024-04-06T00:00:00Z', ['2024-04-06T14:45:00Z', '2024-04-07T15:15:00Z']],
    ['Europe/Berlin', '0 */2 * * *', '2030-10-26T23:00:00Z', ['2030-10-27T00:00:00Z', '2030-10-27T03:00:00Z']],
  ])('runs once, the first time: %s %s', (zone, cron, after, expected) => {
    expect(slots(cron, zone, after, 2)).toEqual(expected);
  });

  it('does not run again for a pod that starts inside the repeated hour', () => {
    // 02:10 for the second time.
    expect(slots('30 2 * * *', 'Europe/Berlin', '2030-10-27T01:10:00Z', 1)).toEqual(['2030-10-28T01:30:00Z']);
    expect(slots('*/15 2 * * *', 'Europe/Berlin', '2030-10-27T01:10:00Z', 1)).toEqual(['2030-10-28T01:00:00Z']);
  });

  it('goes on through both passes where the expression runs in every hour', () => {
    expect(slots('*/15 * * * *', 'Europe/Berlin', '2030-10-26T23:50:00Z', 10)).toEqual([
      '2030-10-27T00:00:00Z',
      '2030-10-27T00:15:00Z',
      '2030-10-27T00:30:00Z',
      '2030-10-27T00:45:00Z',
      '2030-10-27T01:00:00Z',
      '2030-10-27T01:15:00Z',
      '2030-10-27T01:30:00Z',
      '2030-10-27T01:45:00Z',
      '2030-10-27T02:00:00Z',
      '2030-10-27T02:15:00Z',
    ]);
    expect(slots('20 * * * *', 'Australia/Lord_Howe', '2024-04-06T13:55:00Z', 3)).toEqual([
      '2024-04-06T14:20:00Z',
      '2024-04-06T15:50:00Z',
      '2024-04-06T16:50:00Z',
    ]);
    expect(slots('40 * * * *', 'Australia/Lord_Howe', '2024-04-06T13:55:00Z', 3)).toEqual([
      '2024-04-06T14:40:00Z',
      '2024-04-06T15:10:00Z',
      '2024-04-06T16:10:00Z',
    ]);
  });
});

describe('the latest slot up to an instant', () => {
  it('is found over years of every-second slots without looking at each', () => {
    const parsed = parseCron('* * * * * *', 'Europe/Berlin');
    expect(parsed.latest(at('2024-01-01T00:00:00Z'), at('2030-06-01T00:00:00.999Z'))).toEqual(
      at('2030-06-01T00:00:00Z'),
    );
  });

  it('is the instant itself when that is a slot, and never one at or before the start', () => {
    const parsed = parseCron('0 * * * *', 'UTC');
    expect(parsed.latest(at('2030-01-01T00:00:00Z'), at('2030-01-01T02:00:00Z'))).toEqual(at('2030-01-01T02:00:00Z'));
    expect(parsed.latest(at('2030-01-01T00:00:00Z'), at('2030-01-01T00:59:59Z'))).toBeUndefined();
  });
});
