/**
 * What one pod tells the others after a commit: which cells may have work. Bounded: beyond `MAX_CELLS` it says "all".
 * Pure. Whatever comes in is judged here; what is no such message reads as `undefined`.
 *
 * `{"from":"<pod>","cells":[["fast","orders:announce",3,17],["long","reports:build"]]}`, or `"cells":"all"`.
 */
import type { HintedCell } from '../jobs.events.js';
import { JobLane } from '../jobs.types.js';

export const MAX_CELLS = 64;
const MAX_MESSAGE_CHARS = 64 * 1024;

export interface WakeMessage {
  readonly from: string;
  readonly cells: readonly HintedCell[] | 'all';
}

export const wakeChannel = (database: string): string => `sidelane:${database}:wake`;

export function encodeWake({ from, cells }: WakeMessage): string {
  if (cells === 'all') return JSON.stringify({ from, cells });
  const grouped = new Map<string, [lane: string, target: string, ...partitions: number[]]>();
  for (const { lane, target, partition } of cells) {
    const group = grouped.get(`${lane} ${target}`) ?? [lane, target];
    grouped.set(`${lane} ${target}`, group);
    group.push(partition);
  }
  return JSON.stringify({ from, cells: [...grouped.values()] });
}

export function decodeWake(text: string): WakeMessage | undefined {
  if (text.length > MAX_MESSAGE_CHARS) return undefined;
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { from, cells } = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>;
  if (typeof from !== 'string') return undefined;
  if (cells === 'all') return { from, cells };
  const read = Array.isArray(cells) && cells.every(isGroup) ? cells.flatMap(cellsOf) : undefined;
  return read && read.length <= MAX_CELLS ? { from, cells: read } : undefined;
}

type Group = [lane: JobLane, target: string, ...partitions: number[]];

function isGroup(raw: unknown): raw is Group {
  if (!Array.isArray(raw)) return false;
  const [lane, target, ...partitions] = raw as unknown[];
  const known = lane === JobLane.fast || lane === JobLane.long;
  return known && typeof target === 'string' && partitions.every((each) => Number.isSafeInteger(each));
}

function cellsOf([lane, target, ...partitions]: Group): HintedCell[] {
  return partitions.map((partition) => ({ lane, target, partition }));
}

/** Cells waiting to be told, each once; says "all" when there are too many to name. */
export class PendingCells {
  private cells = new Map<string, HintedCell>();
  private overflow = false;

  get empty(): boolean {
    return this.cells.size === 0 && !this.overflow;
  }

  add(cells: readonly HintedCell[]): void {
    for (const cell of cells) {
      if (this.overflow) return;
      this.cells.set(`${cell.lane} ${cell.partition} ${cell.target}`, cell);
      if (this.cells.size > MAX_CELLS) {
        this.overflow = true;
        this.cells.clear();
      }
    }
  }

  take(): HintedCell[] | 'all' {
    const taken = this.overflow ? 'all' : [...this.cells.values()];
    this.cells.clear();
    this.overflow = false;
    return taken;
  }
}
