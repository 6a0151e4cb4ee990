/** Rules about schedules: each slot becomes one row, which runs, and the schedule goes on. Pure. */
import { groupBy, type Evidence, type Run, type Violation } from './evidence.js';
import { LEASE_MS } from './pod_settings.js';

/** A slot that starts later than this may give way to a newer one, in ms; such a skip is told only if it is the newest. */
const LATE_MS = 60_000;
/** A slot that still runs when its schedule is so far ahead, in ms, is run by nobody. */
const STUCK_MS = 4 * LEASE_MS;

export function slotRules(evidence: Evidence, runs: readonly Run[]): Violation[] {
  return [
    ...doubledSlots(runs),
    ...lostSlots(evidence, runs),
    ...deadSlots(evidence),
    ...stuckSlots(evidence),
    ...endedSchedules(evidence),
  ];
}

/** Any number of pods make one row per slot. */
function doubledSlots(runs: readonly Run[]): Violation[] {
  const slots = groupBy(
    runs.filter(({ slot }) => slot !== undefined),
    ({ target, slot }) => `${target} ${slot}`,
  );
  return [...slots].flatMap(([slot, ofSlot]) => {
    const ids = new Set(ofSlot.map(({ id }) => id));
    return ids.size > 1 ? [{ invariant: 'slot' as const, text: `${slot} became ${ids.size} rows` }] : [];
  });
}

/** A slot that its schedule has decided about ran to a good end, or still stands, or was told as skipped. */
function lostSlots({ schedules, slot_rows }: Evidence, runs: readonly Run[]): Violation[] {
  const ran = runs.filter(({ ended, slot }) => slot !== undefined && ended?.result === 'ok');
  const seen = new Set([
    ...ran.map(({ target, slot }) => `${target} ${slot}`),
    ...slot_rows.map(({ code, slot }) => `schedule:${code} ${slot}`),
  ]);
  return schedules.flatMap(({ code, slots, skipped }) =>
    slots
      .filter((slot) => !seen.has(`schedule:${code} ${slot}`) && !isSkipped(slot, skipped))
      .map((slot): Violation => ({ invariant: 'slot', text: `${code}: ${slot} was decided, never ran, is gone` })),
  );
}

const isSkipped = (slot: string, skipped: readonly string[]): boolean =>
  skipped.some((told) => told === slot || Date.parse(told) - Date.parse(slot) > LATE_MS);

/** Faults make no slot DEAD. */
function deadSlots({ slot_rows, expectDead }: Evidence): Violation[] {
  return slot_rows
    .filter(({ status }) => status === 'DEAD')
    .filter(({ code, slot }) => !expectDead({ n: `${code}@${slot}`, target: `schedule:${code}`, behaviour: 'ok' }))
    .map(({ code, slot }) => ({ invariant: 'slot', text: `${code}: ${slot} is DEAD` }));
}

/** A slot whose pod died is taken up again: it does not stay RUNNING while its schedule goes on. */
function stuckSlots({ schedules, slot_rows }: Evidence): Violation[] {
  const newest = new Map(
    schedules.map(({ code, slots, skipped }) => [
      code,
      Math.max(...[...slots, ...skipped].map((slot) => Date.parse(slot))),
    ]),
  );
  return slot_rows
    .filter(({ status, code, slot }) => status === 'RUNNING' && newest.get(code)! - Date.parse(slot) > STUCK_MS)
    .map(({ code, slot }) => ({ invariant: 'slot', text: `${code}: ${slot} is still RUNNING, its schedule went on` }));
}

/** A schedule always has its next slot. */
function endedSchedules({ schedules }: Evidence): Violation[] {
  return schedules
    .filter(({ next_run_at }) => next_run_at === undefined)
    .map(({ code }) => ({ invariant: 'slot', text: `${code} has no next slot` }));
}
