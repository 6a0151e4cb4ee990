import { randomUUID } from 'node:crypto';

/** Where identifiers come from; injected so that a test can name them. */
export interface IdSource {
  /** A fence: unguessable, never repeated. */
  token(): string;
  /** A key that sorts by time, so that an index grows at one end instead of all over; of one process, in order. */
  sortable(): string;
}

export const ID_SOURCE = Symbol('sidelane.ids');

export const systemIds: IdSource = { token: () => randomUUID(), sortable: sortableIds() };

const COUNTS = 0x1000;

/**
 * UUIDs of version 7 (RFC 9562): milliseconds, a counter within them, 62 random bits. Those come from `randomUUID`, which
 * draws them in advance for many: fresh ones for each key cost more than the rest of a row.
 */
export function sortableIds(wall: () => number = () => Date.now()): () => string {
  let ms = 0;
  let count = 0;
  return () => {
    const now = wall();
    // The clock may stand still or go back: order is kept, and the time borrowed from what comes.
    if (now > ms) [ms, count] = [now, 0];
    else if (++count === COUNTS) [ms, count] = [ms + 1, 0];
    const time = ms.toString(16).padStart(12, '0');
    return `${time.slice(0, 8)}-${time.slice(8)}-7${count.toString(16).padStart(3, '0')}-${randomUUID().slice(19)}`;
  };
}
