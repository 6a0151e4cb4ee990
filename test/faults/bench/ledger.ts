/**
 * What really happened, outside of the engine: one append-only file per process, written line by line and synchronously,
 * so that a line stands before the step that follows it and outlives a SIGKILL. Times are of the machine's monotonic
 * clock, which all its processes share.
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

  constructor(
    folder: string,
    private readonly pod: string,
  ) {
    mkdirSync(folder, { recursive: true });
    this.file = openSync(join(folder, `${pod}.ledger`), 'a');
  }

  write(event: LedgerEvent): void {
    writeSync(this.file, `${JSON.stringify({ at: machineMs(), pod: this.pod, ...event })}\n`);
  }
}

/** Grows with every line of every process. */
export function ledgerBytes(folder: string): number {
  const names = readdirSync(folder).filter((name) => name.endsWith('.ledger'));
  return names.reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
}

/** All lines of all processes, oldest first. A last line that a kill cut short is left out. */
export function readLedgers(folder: string): LedgerLine[] {
  const names = readdirSync(folder).filter((name) => name.endsWith('.ledger'));
  const lines = names.flatMap((name) =>
    readFileSync(join(folder, name), 'utf8')
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as LedgerLine),
  );
  return lines.sort((a, b) => a.at - b.at);
}
