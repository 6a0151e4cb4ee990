/**
 * Cron expressions: which instants are slots. Pure; the same expression, zone and instant give the same answer on every
 * pod and after every restart.
 *
 * croner matches wall-clock times; where they lie on the time line is decided here, because its rule drops a slot of
 * `0 0,12 * * *` on a day without a midnight. The rules where clocks jump:
 * - a slot in a gap runs once, right after the gap (several of them: one run);
 * - a slot in an overlap runs once, the first time the wall shows it;
 * - but an expression that runs in every hour goes on through the repeated hour, rather than rest for an hour.
 */
import { Cron, CronPattern } from 'croner';
import { InvalidInputError } from '../common/errors.js';
import { changeBetween, firstInstantOf, timeZone, type TimeZone } from './time_zone.js';

const MODE = '5-or-6-parts';
const MAX_CHARS = 200;
const DAY = 24 * 3_600_000;
/** A leap year's first day: 29 February lies ahead, whatever the present year is. */
const REFERENCE = Date.UTC(2024, 0, 1);
const FIVE_YEARS = 5 * 366 * DAY;
/** Gaps looked at to tell how often an expression runs. */
const SAMPLE = 21;

export interface CronSlots {
  /** The first slot after an instant. */
  next(after: Date): Date;
  /** The last slot after `after`, up to and including `until`. Its cost does not grow with the slots in between. */
  latest(after: Date, until: Date): Date | undefined;
  /** How far apart slots usually are, in ms. */
  readonly interval_ms: number;
}

/** Names of the two values in error messages. */
export interface CronFields {
  cron: string;
  timezone: string;
}

/**
 * Throws `invalid_cron` for anything but 5 or 6 fields (seconds first) that fire within five years, `invalid_timezone`
 * for a zone nobody knows; each names its field.
 */
export function parseCron(
  expression: unknown,
  timezone: unknown,
  fields: CronFields = { cron: 'cron', timezone: 'timezone' },
): CronSlots {
  const zone = timeZone(timezone, fields.timezone);
  const wall = wallClock(expression, fields.cron);
  const next = (after: number): number => {
    const soon = wall.everyHour ? nextWithoutChange(wall, zone, after) : undefined;
    if (soon !== undefined) return soon;
    const first = nextFirstShown(wall, zone, after);
    return wall.everyHour ? Math.min(first, nextShownAgain(wall, zone, after, first)) : first;
  };
  return {
    next: (after) => new Date(next(after.getTime())),
    latest: (after, until) => {
      const found = latest(next, after.getTime(), until.getTime());
      return found === undefined ? undefined : new Date(found);
    },
    get interval_ms() {
      return usualGap(wall);
    },
  };
}

/** The expression on the wall: no zone, no jumps. */
interface WallClock {
  readonly everyHour: boolean;
  next(after: number): number;
}

function wallClock(expression: unknown, field: string): WallClock {
  const fail = (reason: string, cause?: unknown): InvalidInputError =>
    new InvalidInputError('invalid_cron', `${field}: ${reason}`, field, { cause });
  if (typeof expression !== 'string') throw fail('expected a cron expression');
  const text = expression.trim();
  // Nicknames and dates, which the parser would take as well, are no schedules of the contract.
  if (text.length > MAX_CHARS || ![5, 6].includes(text.split(/\s+/).length))
    throw fail(`expected 5 fields, or 6 with seconds first, got ${JSON.stringify(text.slice(0, 80))}`);
  const [cron, pattern] = parsed(text, (error) => fail(`${JSON.stringify(text)}: ${(error as Error).message}`, error));
  const first = cron.nextRun(new Date(REFERENCE));
  if (!first || first.getTime() > REFERENCE + FIVE_YEARS)
    throw fail(`${JSON.stringify(text)} never fires within 5 years`);
  return {
    everyHour: pattern.hour.every(Boolean),
    next: (after) => {
      const found = cron.nextRun(new Date(after));
      if (!found) throw fail(`${JSON.stringify(text)} has no further slot`);
      return found.getTime();
    },
  };
}

function parsed(text: string, fail: (error: unknown) => InvalidInputError): [Cron, CronPattern] {
  try {
    return [new Cron(text, { utcOffset: 0, mode: MODE, paused: true }), new CronPattern(text, 'UTC', { mode: MODE })];
  } catch (error) {
    throw fail(error);
  }
}

/** Later wall times are first shown at later instants or at the same one, so the first that lies behind `after` is it. */
function nextFirstShown(wall: WallClock, zone: TimeZone, after: number): number {
  let shown = after + zone.offsetAt(after);
  for (;;) {
    shown = wall.next(shown);
    const instant = firstInstantOf(zone, shown);
    if (instant > after) return instant;
  }
}

/**
 * The next slot of an expression that runs in every hour, where the clocks do not change before it. In an hour that comes
 * twice the search for what is shown for the first time would go through all of its slots, on the event loop.
 */
function nextWithoutChange(wall: WallClock, zone: TimeZone, after: number): number | undefined {
  const offset = zone.offsetAt(after);
  const instant = wall.next(after + offset) - offset;
  return zone.offsetAt(instant) === offset ? instant : undefined;
}

/** The first slot after `after` on the second pass through a repeated hour; `otherwise` where there is none before it. */
function nextShownAgain(wall: WallClock, zone: TimeZone, after: number, otherwise: number): number {
  const until = Math.min(otherwise, after + DAY);
  const [offset, later] = [zone.offsetAt(after), zone.offsetAt(until)];
  if (later > offset) return otherwise;
  // The clocks go back on the way: what the wall shows again begins with the change itself.
  const from = later < offset ? changeBetween(zone, after, until) - 1 : after;
  const instant = wall.next(from + later) - later;
  return instant <= until ? instant : otherwise; // beyond `until` the offset may be another one
}

function latest(next: (after: number) => number, after: number, until: number): number | undefined {
  let low = next(after);
  if (low > until) return undefined;
  let high = until;
  while (low < high) {
    // First a look at the very next one: a tick in time finds one slot.
    const middle = low + Math.floor((high - low) / 2);
    const slot = next(middle);
    if (slot <= until) low = slot;
    else high = middle;
  }
  return low;
}

/** The upper middle of the gaps: five-minute slots in office hours are five minutes apart, two a day are not one minute. */
function usualGap(wall: WallClock): number {
  const gaps: number[] = [];
  let slot = wall.next(REFERENCE);
  for (let count = 0; count < SAMPLE; count++) {
    const following = wall.next(slot);
    gaps.push(following - slot);
    slot = following;
  }
  return gaps.sort((a, b) => a - b)[Math.floor(gaps.length / 2)]!;
}
