/** Properties of slots: over any expression, zone and instant, with restarts at any time. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { parseCron, type CronSlots } from '../../src/schedules/cron.js';
import { MissedSlotPolicy, planTick, type TickPlan } from '../../src/schedules/schedule_rules.js';

const ZONES = [
  '+07:00',
  'UTC',
  'Europe/Berlin',
  'America/Santiago',
  'Africa/Cairo',
  'Asia/Beirut',
  'Australia/Lord_Howe',
  'Asia/Kathmandu',
];
/** Days on which one of the zones jumps, and the days around them: where the rules matter. */
const JUMPS = ['2030-03-31', '2030-10-27', '2024-09-08', '2024-04-07', '2024-04-26', '2024-11-01', '2024-10-06'];

const list = (min: number, max: number): fc.Arbitrary<string> =>
  fc.oneof(
    fc.constant('*'),
    fc.integer({ min, max }).map(String),
    fc.integer({ min: 2, max: 20 }).map((step) => `*/${step}`),
    fc.uniqueArray(fc.integer({ min, max }), { minLength: 2, maxLength: 4 }).map((values) => values.join(',')),
  );
const expression = fc
  .tuple(
    list(0, 59),
    fc.oneof(list(0, 23), fc.constantFrom('0', '1', '2', '23', '0,2', '*/2', '1-3')),
    fc.constantFrom('*', '*', '*', '1', '15', 'L', '1-7'),
    fc.constantFrom('*', '*', '3', '9', '10'),
    fc.constantFrom('*', '*', 'SUN', 'MON#2', '1-5'),
  )
  .map((fields) => fields.join(' '));
const zone = fc.constantFrom(...ZONES);
const instant = fc.oneof(
  fc
    .tuple(fc.constantFrom(...JUMPS), fc.integer({ min: -36 * 3600, max: 36 * 3600 }), fc.integer({ min: 0, max: 999 }))
    .map(([day, seconds, ms]) => new Date(Date.parse(day) + seconds * 1000 + ms)),
  fc.date({ min: new Date('2000-01-01'), max: new Date('2060-01-01'), noInvalidDate: true }),
);

function enumerate(slots: CronSlots, after: Date, count: number): number[] {
  const found: number[] = [];
  for (let slot = after; found.length < count;) {
    slot = slots.next(slot);
    found.push(slot.getTime());
  }
  return found;
}

const RUNS = { numRuns: 400 };

describe('slots', () => {
  it('lie after the instant asked about, strictly increase, and are found from right before themselves', () => {
    fc.assert(
      fc.property(expression, zone, instant, (cron, name, from) => {
        const slots = parseCron(cron, name);
        let before = from.getTime();
        for (const slot of enumerate(slots, from, 8)) {
          expect(slot).toBeGreaterThan(before);
          expect(slots.next(new Date(slot - 1)).getTime()).toBe(slot);
          before = slot;
        }
      }),
      RUNS,
    );
  });

  it('do not depend on where one starts to look: between two slots there is no third', () => {
    fc.assert(
      fc.property(expression, zone, instant, fc.double({ min: 0, max: 1, noNaN: true }), (cron, name, from, share) => {
        const slots = parseCron(cron, name);
        const [first, second] = enumerate(slots, from, 2) as [number, number];
        const between = first + Math.floor((second - first - 1) * share);
        expect(slots.next(new Date(between)).getTime()).toBe(second);
      }),
      RUNS,
    );
  });

  it('are never without a run for longer on a day that clocks change than the gap or overlap adds', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 30 }), zone, instant, (minutes, name, from) => {
        const found = enumerate(parseCron(`*/${minutes} * * * *`, name), from, 30);
        const gaps = found.slice(1).map((slot, index) => slot - found[index]!);
        expect(Math.max(...gaps)).toBeLessThanOrEqual(minutes * 60_000 + 30 * 60_000);
      }),
      RUNS,
    );
  });

  it('and the latest of them up to an instant is the last that stepping would find', () => {
    fc.assert(
      fc.property(expression, zone, instant, fc.integer({ min: 0, max: 12 }), (cron, name, from, count) => {
        const slots = parseCron(cron, name);
        const found = enumerate(slots, from, count + 1);
        const until = new Date(found[count]! - 1);
        const expected = count === 0 ? undefined : new Date(found[count - 1]!);
        expect(slots.latest(from, until)).toEqual(expected);
      }),
      RUNS,
    );
  });
});

describe('ticks at any times, with any restarts', () => {
  /** Ticks at the given times; what is stored between them is all a pod knows. */
  function tick(slots: CronSlots, start: Date, times: readonly number[], policy: MissedSlotPolicy) {
    let stored = slots.next(start);
    const plans: (TickPlan & { stored: Date; now: Date })[] = [];
    for (const time of times) {
      const now = new Date(time);
      if (stored > now) continue;
      const plan = planTick({ stored, now, policy, slots });
      plans.push({ ...plan, stored, now });
      stored = plan.next;
    }
    return { plans, stored };
  }

  it('lose no slot and double none: each is enqueued once, or lies in what was recorded as skipped', () => {
    fc.assert(
      fc.property(
        expression,
        zone,
        instant,
        fc.array(fc.integer({ min: 0, max: 6 * 3_600_000 }), { minLength: 1, maxLength: 12 }),
        fc.constantFrom(...Object.values(MissedSlotPolicy)),
        (cron, name, start, waits, policy) => {
          const slots = parseCron(cron, name);
          let time = start.getTime();
          const times = waits.map((wait) => (time += wait));
          const { plans, stored } = tick(slots, start, times, policy);
          const enqueued = plans.filter((plan) => plan.enqueue).map((plan) => plan.newest.getTime());
          expect(new Set(enqueued).size).toBe(enqueued.length);
          for (
            let slot = slots.next(start), count = 0;
            slot < stored && count < 500;
            slot = slots.next(slot), count++
          ) {
            const skips = plans.filter(
              ({ skipped }) => skipped && skipped.first <= slot && slot <= skipped.last,
            ).length;
            expect(skips + enqueued.filter((one) => one === slot.getTime()).length).toBe(1);
          }
          for (const plan of plans) expect(plan.next > plan.now).toBe(true);
        },
      ),
      { numRuns: 200 },
    );
  });
});
