/** Where the clocks of a zone change in a year: told from the runtime's zone data alone, as an oracle beside the engine's. Pure. */
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

export interface ZoneChange {
  /** The first instant of the new offset. */
  at: number;
  /** What the wall would have shown at that instant without the change, and what it shows; read as if it were UTC. */
  before: number;
  after: number;
}

/** Wall minus UTC, in ms. */
function offsetAt(zone: string, instant: number): number {
  const format = new Intl.DateTimeFormat('en-US', { timeZone: zone, timeZoneName: 'longOffset' });
  const name = format.formatToParts(instant).find(({ type }) => type === 'timeZoneName')!.value;
  const [, sign, hours, minutes] = /^GMT([+-])(\d\d):(\d\d)$/.exec(name) ?? [];
  return sign === undefined ? 0 : Number(`${sign}1`) * (Number(hours) * HOUR + Number(minutes) * 60_000);
}

export function changesOf(zone: string, year: number): ZoneChange[] {
  const changes: ZoneChange[] = [];
  for (let day = Date.UTC(year, 0, 1); day < Date.UTC(year + 1, 0, 1); day += DAY) {
    const [old, fresh] = [offsetAt(zone, day), offsetAt(zone, day + DAY)];
    if (old === fresh) continue;
    let [low, high] = [day, day + DAY];
    while (high - low > 1_000) {
      const middle = low + Math.floor((high - low) / 2_000) * 1_000;
      if (offsetAt(zone, middle) === old) low = middle;
      else high = middle;
    }
    changes.push({ at: high, before: high + old, after: high + fresh });
  }
  return changes;
}
