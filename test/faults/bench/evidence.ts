/**
 * What a round left behind, as the bench gathers it for the judge (invariants.ts), and what of it every rule needs: runs
 * out of ledger lines. Pure.
 */
import type { Ending, LedgerLine, RunStart } from './ledger.js';

export interface ProducedRow {
  n: string;
  target: string;
  key?: string;
  version?: number;
  behaviour: string;
}

export interface LeftRow {
  id: string;
  n: string;
  target: string;
  status: string;
  attempts: number;
  crashes: number;
  last_error?: string;
}

export interface Evidence {
  lines: readonly LedgerLine[];
  produced: readonly ProducedRow[];
  left: readonly LeftRow[];
  /** Ids of rows whose death was mourned in the transaction that made them DEAD, with repetitions. */
  mourned: readonly string[];
  /** Admin actions that took effect; `id` is the row's. */
  audit: readonly { action: string; n: string; id: string }[];
  /** Partitions that have an owner or marks after every pod was stopped in order. */
  unreleased: number;
  pods: readonly PodStory[];
  /** Rows that may be DEAD though nothing was wrong with them beside the faults (poison and the like). */
  expectDead(row: ProducedRow): boolean;
  /** Nothing was done to a process or to its connection to the database. */
  calm: boolean;
  /** Rows that an admin took away and that were seen gone, with the machine's time of that look. */
  removed: readonly { n: string; at: number }[];
  /** Terms in the order in which the sampler first saw them, `at`: when the look that saw it was over. */
  terms: readonly { partition: number; term: string; at: number }[];
  /** Per schedule: every `last_slot_at` that was ever seen, slots it told as skipped, and when it is to run next. */
  schedules: readonly ScheduleStory[];
  /** Rows of schedules that are left. */
  slot_rows: readonly SlotRow[];
}

/** Times are ISO. */
export interface ScheduleStory {
  code: string;
  slots: readonly string[];
  skipped: readonly string[];
  next_run_at?: string;
}

export interface SlotRow {
  id: string;
  code: string;
  slot: string;
  status: string;
}

export interface PodStory {
  name: string;
  /** Died though nobody killed it. */
  diedByItself?: string;
  endedAt: number;
}

export interface Violation {
  invariant:
    | 'lost'
    | 'phantom'
    | 'doubled'
    | 'order'
    | 'owner'
    | 'exclusive'
    | 'slot'
    | 'chain'
    | 'mourning'
    | 'dead'
    | 'died'
    | 'trouble'
    | 'state'
    | 'release'
    | 'drain'
    | 'lossy'
    | 'calm'
    | 'scenario';
  text: string;
}

export type Start = Extract<LedgerLine, RunStart>;
export type Run = Start & { ended?: { at: number; result: Ending } };

export function runsOf(lines: readonly LedgerLine[]): Run[] {
  const open = new Map<string, Run>();
  const runs: Run[] = [];
  for (const line of lines) {
    if (line.what === 'start') {
      const run: Run = { ...line };
      open.set(`${line.pod} ${line.run}`, run);
      runs.push(run);
    }
    if (line.what !== 'end') continue;
    const run = open.get(`${line.pod} ${line.run}`);
    if (run) run.ended ??= { at: line.at, result: line.result };
  }
  return runs;
}

/** How often an admin brought each row back from DEAD. */
export function retriesOf({ audit }: Pick<Evidence, 'audit'>): (n: string) => number {
  const retries = groupBy(
    audit.filter(({ action }) => action === 'job.retry'),
    ({ n }) => n,
  );
  return (n) => retries.get(n)?.length ?? 0;
}

export function groupBy<T>(list: readonly T[], name: (value: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const value of list) {
    const group = groups.get(name(value));
    if (group) group.push(value);
    else groups.set(name(value), [value]);
  }
  return groups;
}
