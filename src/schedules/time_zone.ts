/**
 * Time zones as the schedules need them: the offset at an instant, and where a wall-clock time lies on the time line.
 * Pure: the rules come from the runtime's own zone data, the time from the caller.
 *
 * "Wall" times are numbers in milliseconds as well: what the clock on the wall shows, read as if it were UTC.
 */
import { InvalidInputError } from '../common/errors.js';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;
/** Widest offset in use anywhere is +14:00. */
const MAX_OFFSET = 14 * HOUR;

export interface TimeZone {
  readonly name: string;
  /** Wall minus UTC, in ms. */
  offsetAt(instant: number): number;
}

/** An IANA name (`Asia/Bangkok`) or a fixed offset (`+07:00`). Throws `invalid_timezone` that names `field`. */
export function timeZone(name: unknown, field = 'timezone'): TimeZone {
  if (typeof name !== 'string' || name === '') throw invalid(field, name);
  const [, sign, hours, minutes] = /^([+-])(\d\d):([0-5]\d)$/.exec(name) ?? [];
  if (sign) {
    const offset = (sign === '-' ? -1 : 1) * (Number(hours) * HOUR + Number(minutes) * 60_000);
    if (Math.abs(offset) > MAX_OFFSET) throw invalid(field, name);
    return { name, offsetAt: () => offset };
  }
  const format = formatOf(name, field);
  return { name, offsetAt: (instant) => wallOf(format, instant) - instant };
}

/** The first instant at which the wall shows `wall`; where clocks jump over it, the instant they jumped. */
export function firstInstantOf(zone: TimeZone, wall: number): number {
  // Read as UTC, a day earlier and a day later lie before and after any change that concerns this wall time.
  const before = zone.offsetAt(wall - DAY);
  const after = zone.offsetAt(wall + DAY);
  const shown = [wall - before, wall - after].filter((instant) => instant + zone.offsetAt(instant) === wall);
  if (shown.length > 0) return Math.min(...shown);
  return changeBetween(zone, wall - after, wall - before);
}

/** The instant in `(from, to]` at which the offset changes. Both must lie on different sides of one change. */
export function changeBetween(zone: TimeZone, from: number, to: number): number {
  const offset = zone.offsetAt(from);
  let [low, high] = [from, to];
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    if (zone.offsetAt(middle) === offset) low = middle;
    else high = middle;
  }
  return high;
}

function formatOf(name: string, field: string): Intl.DateTimeFormat {
  try {
    return new Intl.DateTimeFormat('en-US', {
      timeZone: name,
      calendar: 'gregory',
      numberingSystem: 'latn',
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch {
    throw invalid(field, name);
  }
}

function wallOf(format: Intl.DateTimeFormat, instant: number): number {
  const shown: Partial<Record<Intl.DateTimeFormatPartTypes, number>> = {};
  for (const { type, value } of format.formatToParts(instant)) shown[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = shown;
  const milliseconds = ((instant % 1000) + 1000) % 1000; // the format cuts them off
  return Date.UTC(year, month - 1, day, hour, minute, second) + milliseconds;
}

function invalid(field: string, given: unknown): InvalidInputError {
  return new InvalidInputError(
    'invalid_timezone',
    `${field}: expected an IANA time zone such as Asia/Bangkok or an offset such as +07:00, got ${shown(given)}`,
    field,
  );
}

function shown(given: unknown): string {
  return typeof given === 'string' ? JSON.stringify(given.slice(0, 80)) : typeof given;
}
