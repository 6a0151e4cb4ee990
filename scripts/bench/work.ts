// The job that every side carries: about 0.2 kB of payload, keys that repeat, versions that grow.
export interface WorkItem {
  key: string;
  version: number;
  payload: { order_id: string; customer: string; amount: number; note: string };
  headers: Record<string, string>;
}

const KEYS = 1_000;

export function payloadOf(i: number): WorkItem['payload'] {
  return { order_id: `o-${i}`, customer: `customer-${i % 5000}`, amount: i % 997, note: 'x'.repeat(120) };
}

export function workItem(i: number): WorkItem {
  return {
    key: `k${i % KEYS}`,
    version: Math.floor(i / KEYS),
    payload: payloadOf(i),
    headers: { source: 'bench' },
  };
}

/** Runs `work` for 0..count-1, `width` at a time. */
export async function pool(count: number, width: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: Math.min(width, count) }, lane));
}

/** Cuts 0..count-1 into pieces. */
export async function inChunks(count: number, size: number, work: (from: number, to: number) => Promise<unknown>) {
  for (let from = 0; from < count; from += size) await work(from, Math.min(count, from + size));
}

export const seconds = (since: number): number => (performance.now() - since) / 1000;
