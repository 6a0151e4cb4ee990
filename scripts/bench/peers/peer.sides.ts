// Drain and enqueue of a peer, as sides.
import type { CommandCount } from '../command_count.js';
import type { Side } from '../measure.js';
import { inChunks, pool, seconds } from '../work.js';
import type { Peer } from './peer.types.js';

/** Without a job for so long a drain has stalled. */
const STALL_MS = 20_000;
const WARM_ROWS = 50;

export function drainSide(name: string, peer: Peer, rows: number, commands?: CommandCount): Side {
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await peer.open();
      await fillPeer(peer, WARM_ROWS);
      await drain(peer, WARM_ROWS);
      await peer.stop();
      await fillPeer(peer, rows);
      commands?.reset();
      const value = await drain(peer, rows);
      const counts: Record<string, number> = commands ? { 'commands/row': commands.total / rows } : {};
      await peer.stop();
      return { value, counts };
    },
  };
}

/**
 * Jobs per second. Agenda now and then leaves the jobs of its first poll locked for ten minutes: a drain that stalls counts
 * with what it ran until then, which says so on the error stream.
 */
async function drain(peer: Peer, count: number): Promise<number> {
  const began = performance.now();
  let [done, last] = [0, began];
  let stalled: NodeJS.Timeout | undefined;
  await new Promise<void>((resolve, reject) => {
    const stall = (): void => {
      if (done === 0) reject(new Error(`${peer.name} ran none of ${count} jobs`));
      console.error(`  ${peer.name} stalled: ${count - done} of ${count} jobs left`);
      resolve();
    };
    const onDone = (): void => {
      done++;
      last = performance.now();
      stalled?.refresh();
      if (done === count) resolve();
    };
    stalled = setTimeout(stall, STALL_MS);
    peer.start({ onStart: () => undefined, onDone }).catch(reject);
  }).finally(() => clearTimeout(stalled));
  return done / ((last - began) / 1_000);
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
