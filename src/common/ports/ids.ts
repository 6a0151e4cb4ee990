import { randomUUID } from 'node:crypto';

/** Where identifiers come from; injected so that a test can name them. */
export interface IdSource {
  /** A fence: unguessable, never repeated. */
  token(): string;
  /** A key that sorts by time, so that an index grows at one end instead of all over; of one process, in order. */
  sortable(): string;
}

export const ID_SOURCE = Symbol('sidelane.ids');

/** Version 7 and a counter of twelve bits, as four hexadecimal digits. */
const FIRST = 0x7000;
const LAST = 0x7fff;

/**
 * UUIDs of version 7 (RFC 9562): milliseconds, a counter within them, 62 random bits. Those come from `randomUUID`, which
 * draws them in advance for many: fresh ones for each key cost more than the rest of a row.
 */
export function sortableIds(wall: () => number = () => Date.now()): () => string {
  let ms = 0;
  let count = LAST;
  let time = '';
  const begin = (at: number): void => {
    ms = at;
    count = FIRST;
    const digits = ms.toString(16).padStart(12, '0');
    time = `${digits.slice(0, 8)}-${digits.slice(8)}-`;
  };
  return () => {
    const now = wall();
    // The clock may stand still or go back: order is kept, and the time borrowed from what comes.
    if (now > ms) begin(now);
    else if (count === LAST) begin(ms + 1);
    else count++;
    return `${time}${count.toString(16)}${randomUUID().slice(18)}`;
  };
}

export const systemIds: IdSource = { token: () => randomUUID(), sortable: sortableIds() };
