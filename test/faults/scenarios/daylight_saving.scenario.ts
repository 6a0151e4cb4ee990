import { setTimeout as sleep } from 'node:timers/promises';
import { readLedgers, type LedgerLine } from '../bench/ledger.js';
import { PodProcess } from '../bench/pod_process.js';
import type { Scenario } from '../bench/scenario.types.js';
import { until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';
import { changesOf, type ZoneChange } from '../bench/zone_changes.js';

const MINUTE = 60_000;
/** An hour in Europe; half an hour on Lord Howe; a midnight that does not exist in Chile. */
const ZONES = ['Europe/Berlin', 'Australia/Lord_Howe', 'America/Santiago', 'America/New_York'];
const YEAR = 2028; // all of it lies ahead: the database's clock only ever moves forward
/** Pods are up about so long before a slot or a change, and stay so long after it. */
const LEAD_MS = 1_500;
const TAIL_MS = 4_000;
/** At least. */
const UP_MS = 500;

/** A time of day, as a cron expression with seconds. */
function daily(wall: number): string {
  const shown = new Date(wall);
  return `${shown.getUTCSeconds()} ${shown.getUTCMinutes()} ${shown.getUTCHours()} * * *`;
}

interface Expected {
  code: string;
  from: number;
  instant: number;
  to: number;
  slots: number[];
}

interface Year {
  gap: ZoneChange;
  overlap: ZoneChange;
}

/** When pods live, and which slots of a schedule they must see then. */
interface Visit {
  code: string;
  at(year: Year): number;
  slots(year: Year): number[];
}

const IN_GAP: Visit = { code: 'in_gap', at: ({ gap }) => gap.at, slots: ({ gap }) => [gap.at] };
/** The first time that the wall shows it, before the clocks go back. */
const firstShown = ({ overlap }: Year): number => overlap.at - (overlap.before - overlap.after) + 1_000;
const SHOWN: Visit = { code: 'in_overlap', at: firstShown, slots: (year) => [firstShown(year)] };
const AGAIN: Visit = { code: 'in_overlap', at: ({ overlap }) => overlap.at + 1_000, slots: () => [] };

function inYear(zone: string, year: number): Year {
  const changes = changesOf(zone, year);
  const gap = changes.find(({ before, after }) => after > before)!;
  const overlap = changes.find(({ before, after }) => after < before)!;
  return { gap, overlap };
}

const expectations = new WeakMap<World, Expected[]>();

const databaseNow = (world: World): number => Date.now() + world.databaseClockMs;

/** Pods run from a little before a slot or a change to a little after it, by the database's clock; their own is off. */
async function live(
  world: World,
  { code, at, slots }: Visit,
  { year, signs }: { year: Year; signs: readonly number[] },
): Promise<Expected | undefined> {
  const instant = at(year);
  world.databaseClockMs = Math.round(instant - LEAD_MS - 1.5 * PodProcess.bootMs) - Date.now();
  for (const sign of signs) {
    await world.start({ clock_offset_ms: world.databaseClockMs + sign * 5 * MINUTE });
  }
  await Promise.all(world.alive.map((pod) => world.up(pod)));
  const from = databaseNow(world);
  if (from > instant - UP_MS) return undefined;
  await sleep(instant + TAIL_MS - from);
  // Of slots that came due together only the newest runs: a machine that is busy just now may leave out several seconds.
  await until(() => slotsOf(readLedgers(world.folder), 'often', { from: instant, to: Infinity }).length > 0);
  return { code, from, instant, to: databaseNow(world), slots: slots(year) };
}

async function stop(world: World): Promise<void> {
  const pods = world.alive;
  for (const pod of pods) pod.terminate();
  await Promise.all(pods.map((pod) => pod.ended));
}

/** The clocks change while pods run: one job per slot over the gap and over the overlap. */
export const daylightSaving: Scenario = {
  name: 'daylight_saving',
  about:
    'the clocks of a zone go forward and back while pods run whose own clocks are five minutes off: one job per slot',
  pods: 0,
  async run(world) {
    const zone = world.random.pick(ZONES);
    const [first] = changesOf(zone, YEAR);
    const { gap, overlap } = inYear(zone, YEAR);
    world.defaults = { schedules: schedulesOf(zone, gap, overlap), produce_per_s: 5 };
    world.fault(`${zone}: pods live around a gap, and around both times that an overlap shows`);
    const order = first!.at === gap.at ? [IN_GAP, SHOWN, AGAIN] : [SHOWN, AGAIN, IN_GAP];
    const expected: Expected[] = [];
    let year = YEAR;
    for (const visit of order) {
      let found: Expected | undefined;
      const signs = world.random.shuffle([1, -1]);
      world.fault(
        `${visit.code}: the first pod is 5 minutes ${signs[0] === 1 ? 'ahead' : 'behind'}, the other the other way`,
      );
      // A machine that was too slow to have pods up in time gets another year.
      for (let tries = 3; tries > 0 && !found; tries--) {
        if (databaseNow(world) > visit.at(inYear(zone, year))) year++;
        found = await live(world, visit, { year: inYear(zone, year), signs });
        if (visit !== order.at(-1) || !found) await stop(world);
      }
      if (found) expected.push(found);
      else world.violated('scenario', 'the pods were up too late to see the change');
    }
    expectations.set(world, expected);
  },
  judge(world, lines) {
    for (const { code, from, instant, to, slots } of expectations.get(world)!) {
      const found = slotsOf(lines, code, { from, to });
      if (found.join() !== slots.join())
        world.violated('slot', `${code}: expected [${slots.map(iso).join()}], got [${found.map(iso).join()}]`);
      const often = slotsOf(lines, 'often', { from, to });
      if (!often.some((slot) => slot >= instant) || often.some((slot) => slot % 1_000 !== 0))
        world.violated('slot', `often: rests over the change, only [${often.map(iso).join()}]`);
    }
  },
};

const iso = (at: number): string => new Date(at).toISOString();

/** One time of day that is left out, one that comes twice, and what runs all the time. */
function schedulesOf(
  timezone: string,
  gap: ZoneChange,
  overlap: ZoneChange,
): { code: string; cron: string; timezone: string }[] {
  return [
    { code: 'in_gap', cron: daily(gap.before + 1_000), timezone },
    { code: 'in_overlap', cron: daily(overlap.after + 1_000), timezone },
    { code: 'often', cron: '* * * * * *', timezone },
  ];
}

/** Slots that became runs, each once for each row it became. */
function slotsOf(lines: readonly LedgerLine[], code: string, { from, to }: { from: number; to: number }): number[] {
  const rows = new Map<string, number>();
  for (const line of lines) {
    if (line.what === 'start' && line.slot !== undefined && line.target === `schedule:${code}`) {
      rows.set(line.id, Date.parse(line.slot));
    }
  }
  return [...rows.values()].filter((slot) => slot >= from && slot <= to).sort((a, b) => a - b);
}
