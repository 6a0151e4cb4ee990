/** What it costs to find the next slot: a tick does it for every schedule, on the event loop. */
import { describe, expect, it } from '@jest/globals';
import { parseCron } from '../../src/schedules/cron.js';

/** New York's clocks go back at 06:00 UTC: from then on they show for the second time what they showed an hour before. */
const CHANGE = Date.UTC(2028, 10, 5, 6);
const CALLS = 20;

describe('the next slot of an expression that runs every second', () => {
  it.each([
    ['before the clocks go back', CHANGE - 1_800_000],
    ['right before', CHANGE - 1],
    ['right after', CHANGE],
    ['in the middle of the hour that comes twice', CHANGE + 1_800_000],
    ['at its end', CHANGE + 3_599_000],
  ])('%s: is found at once, a second later', (_, from) => {
    const slots = parseCron('* * * * * *', 'America/New_York');
    const began = performance.now();
    let at = from;
    for (let call = 0; call < CALLS; call++) at = slots.next(new Date(at)).getTime();
    expect(at).toBe(Math.floor(from / 1_000) * 1_000 + CALLS * 1_000);
    // Slot by slot through the whole hour it takes half a second for each.
    expect(performance.now() - began).toBeLessThan(1_000);
  });
});
