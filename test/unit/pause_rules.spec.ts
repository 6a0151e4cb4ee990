import { describe, expect, it } from '@jest/globals';
import {
  gateOf,
  nextProbeAt,
  permitMs,
  rampAfterAnswer,
  rampAfterTime,
  restMs,
  rowsAtOnce,
  startRamp,
  type Ramp,
} from '../../src/jobs/policy/pause_rules.js';

describe('the gate of a target', () => {
  it.each([
    ['open without a pause', undefined, 0, 'open'],
    ['closed before the probe is due', { probe_at: 30, probe_until: 0 }, 29, 'closed'],
    ['ready for a probe from then on', { probe_at: 30, probe_until: 0 }, 30, 'probe'],
    ['closed while somebody holds the permit', { probe_at: 30, probe_until: 60 }, 59, 'closed'],
    ['ready again when the permit ran out', { probe_at: 30, probe_until: 60 }, 60, 'probe'],
    ['never ready where an admin paused', { probe_at: Infinity, probe_until: 0 }, Number.MAX_SAFE_INTEGER, 'closed'],
  ] as const)('is %s', (_name, rest, now, gate) => expect(gateOf(rest, now)).toBe(gate));

  it('names the next time that anybody may probe', () => {
    expect(nextProbeAt({ probe_at: 30, probe_until: 60 })).toBe(60);
    expect(nextProbeAt({ probe_at: 30, probe_until: 0 })).toBe(30);
  });
});

describe('the rest of a target that was found down', () => {
  it.each([
    ['the interval, when it asks for nothing', undefined, 30_000],
    ['longer, when it asks for it', 120_000, 120_000],
    ['no shorter than the interval', 5, 30_000],
    ['an hour at most', 7 * 24 * 3_600_000, 3_600_000],
    ['an hour at most, whatever it asks for', Infinity, 3_600_000],
    ['the interval, when it asks for no number', NaN, 30_000],
    ['the interval, when it asks for a negative one', -1, 30_000],
    ['the interval, when it asks in words', '120000', 30_000],
  ])('is %s', (_name, wish, ms) => expect(restMs(30_000, wish)).toBe(ms));

  it('one permit lasts the interval, or as long as a send may take', () => {
    expect(permitMs({ probe_ms: 30_000, send_ms: 16_000 })).toBe(30_000);
    expect(permitMs({ probe_ms: 1_000, send_ms: 16_000 })).toBe(16_000);
  });
});

describe('the ramp of a target that came back', () => {
  const placesAfter = (answers: number): number => {
    let ramp: Ramp = startRamp(0);
    for (let answer = 0; answer < answers; answer++) ramp = rampAfterAnswer(ramp, 0);
    return ramp.places;
  };

  it('begins with one row and doubles whenever every place has answered once', () => {
    expect([0, 1, 2, 3, 6, 7, 14, 15].map(placesAfter)).toEqual([1, 2, 2, 4, 4, 8, 8, 16]);
  });

  it('never has more rows under way than answers so far and one', () => {
    for (let answers = 0; answers < 200; answers++) expect(placesAfter(answers)).toBeLessThanOrEqual(answers + 1);
  });

  it('doubles with each period as well, so that long runs, or none, do not hold it back', () => {
    const ramp = rampAfterAnswer(startRamp(0), 5);
    expect(rampAfterTime(ramp, 34, 30).places).toBe(2);
    expect(rampAfterTime(ramp, 35, 30)).toEqual({ places: 4, answers: 0, since: 35 });
    expect(rampAfterTime(ramp, 100, 30)).toEqual({ places: 16, answers: 0, since: 95 });
    expect(rampAfterTime(ramp, 1e12, 30).places).toBeLessThan(Infinity);
  });

  it('divides its places among the cells of the target', () => {
    const target = { concurrency: 8, max_in_flight: 100 };
    expect([1, 8, 16, 80, 1_000, Infinity].map((places) => rowsAtOnce(places, target))).toEqual([
      1, 1, 2, 10, 100, 100,
    ]);
  });
});
