/**
 * What really happened, outside of the engine: one append-only file per process, written line by line and synchronously,
 * so that a line stands before the step that follows it and outlives a SIGKILL. Times are of the machine's monotonic
 * clock, which all its processes share. Slots of schedules come whatever happens: they have a file of their own.
 */
import { mkdirSync, openSync, readdirSync, readFileSync, statSync, writeSync } from 'node:fs';
import { join } from 'node:path';

export interface RunStart {
  what: 'start';
  n: string;
  id: string;
  target: string;
  key: string | undefined;
  version: number;
  /** Number of this run among all runs of its process. */
  run: number;
  attempt: number;
  /** Fast lane: the partition and the token of the term it started under; `none` when the pod held none. */
  partition?: number;
  term?: string;
  /** What the lease had left, in ms; on the fast lane beyond the longest run. */
  room?: number;
  slot?: string;
}

export type Ending = 'ok' | 'failed' | 'unreachable';

export type LedgerEvent =
  | RunStart
  | { what: 'end'; n: string; run: number; result: Ending }
  /** The after-commit hook of the transaction that produced these rows. */
  | { what: 'hook'; rows: string[] }
  /** A transaction that was called off after its enqueue: none of its rows may exist. */
  | { what: 'aborted'; rows: string[] }
  /** A business transaction with the hand-over of what is lossy in it: how long its caller waited, and what it was told. */
  | { what: 'business'; ms: number; error?: string }
  /** Lossy jobs that were given up, as the engine counts them. */
  | { what: 'dropped'; target: string; count: number; reason: string }
  /** Rows of the long lane whose lease ran out while they ran. */
  | { what: 'reclaimed'; rows: number }
  | { what: 'dead'; id: string; reason: string }
  | { what: 'poisoned'; n: string }
  | { what: 'trouble'; text: string }
  | { what: 'stopped' };

export type LedgerLine = LedgerEvent & { at: number; pod: string };

export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;

export class Ledger {
  private readonly file: number;
  private readonly slots: number;
  private readonly slotRuns = new Set<number>();

  constructor(
    folder: string,
    private readonly pod: string,
  ) {
    mkdirSync(folder, { recursive: true });
    this.file = openSync(join(folder, `${pod}.ledger`), 'a');
    this.slots = openSync(join(folder, `${pod}.slots`), 'a');
  }

  write(event: LedgerEvent): void {
    const file = this.isOfSlot(event) ? this.slots : this.file;
    writeSync(file, `${JSON.stringify({ at: machineMs(), pod: this.pod, ...event })}\n`);
  }

  private isOfSlot(event: LedgerEvent): boolean {
    if (event.what === 'start' && event.slot !== undefined) this.slotRuns.add(event.run);
    return (event.what === 'start' || event.what === 'end') && this.slotRuns.has(event.run);
  }
}

/** Grows with every line of every process but those of slots. */
export function ledgerBytes(folder: string): number {
  const names = readdirSync(folder).filter((name) => name.endsWith('.ledger'));
  return names.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
}

/** All lines of all processes, oldest first. A last line that a kill cut short is left out. */
export const readLedgers = (folder: string): LedgerLine[] => read(folder, ['.ledger', '.slots']);

/** The starts and ends of slots alone. */
export const readSlots = (folder: string): LedgerLine[] => read(folder, ['.slots']);

function read(folder: string, kinds: readonly string[]): LedgerLine[] {
  const names = readdirSync(folder).filter((name) => kinds.some((kind) => name.endsWith(kind)));
  const lines = names.flatMap((name) =>
    readFileSync(join(folder, name), 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LedgerLine),
  );
  return lines.sort((a, b) => a.at - b.at);
}
