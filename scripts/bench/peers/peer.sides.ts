// Drain and enqueue of a peer, as sides.
import type { CommandCount } from '../command_count.js';
import type { Side } from '../measure.js';
import { inChunks, pool, seconds } from '../work.js';
import type { Peer } from './peer.types.js';

/** Beyond this a drain has hung. */
const DRAIN_MS = 120_000;
const WARM_ROWS = 50;

export function drainSide(name: string, peer: Peer, rows: number, commands?: CommandCount): Side {
  const drain = async (count: number): Promise<number> => {
    const began = performance.now();
    await startAndWait(peer, count);
    return count / seconds(began);
  };
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await peer.open();
      await fillPeer(peer, WARM_ROWS);
      await drain(WARM_ROWS);
      await peer.stop();
      await fillPeer(peer, rows);
      commands?.reset();
      const value = await drain(rows);
      const counts: Record<string, number> = commands ? { 'commands/row': commands.total / rows } : {};
      await peer.stop();
      return { value, counts };
    },
  };
}

async function startAndWait(peer: Peer, count: number): Promise<void> {
  let hung: NodeJS.Timeout | undefined;
  const done = new Promise<void>((resolve, reject) => {
    let left = count;
    hung = setTimeout(() => reject(new Error(`${peer.name} did not drain: ${left} of ${count} rows left`)), DRAIN_MS);
    const onDone = (): void => void (--left === 0 && resolve());
    peer.start({ onStart: () => undefined, onDone }).catch(reject);
  });
  try {
    await done;
  } finally {
    clearTimeout(hung);
  }
}

async function fillPeer(peer: Peer, rows: number): Promise<void> {
  if (peer.enqueueMany) await inChunks(rows, 500, (from, to) => peer.enqueueMany!(from, to));
  else await pool(rows, 16, (i) => peer.enqueue(i));
}

/** One call a job, `width` at a time. */
export function enqueueSide(name: string, peer: Peer, rows: number, width: number): Side {
  return {
    name,
    unit: 'jobs/s',
    round: async () => {
      await peer.open();
      await pool(width * 2, width, (i) => peer.enqueue(i));
      const began = performance.now();
      await pool(rows, width, (i) => peer.enqueue(i));
      return { value: rows / seconds(began) };
    },
  };
}
