/**
 * What must hold after every scenario, judged from the ledgers and the collections alone. Pure: the bench gathers, this
 * decides. Each rule names the invariant it speaks of; a violation says which rows, so that it can be looked into.
 */
import type { LedgerLine, RunStart } from './ledger.js';
import { isAtMostOnce, isLossy } from './pod_settings.js';

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
  /** Admin actions that took effect. */
  audit: readonly { action: string; n: string }[];
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
    | 'scenario';
  text: string;
}

/** Pods measure the database's clock each for itself, on a busy machine not very well. */
const CLOCK_TOLERANCE_MS = 1_000;

type Start = Extract<LedgerLine, RunStart>;
type Run = Start & { ended?: { at: number; result: string } };

export const MOURNED_TARGETS = ['fast:at_most_once', 'long:at_least_once'];

export function judge(evidence: Evidence): Violation[] {
  const runs = runsOf(evidence.lines);
  const byRow = groupBy(runs, (run) => run.n);
  return [
    ...lostRows(evidence, byRow),
    ...phantoms(evidence, byRow),
    ...doubledRows(evidence, byRow),
    ...disorder(evidence, runs),
    ...twoOwners(runs),
    ...twoExclusive(evidence, runs),
    ...doubledSlots(runs),
    ...brokenChains(evidence),
    ...brokenMourning(evidence),
    ...needlessDeaths(evidence),
    ...troubles(evidence),
  ];
}

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

/** Produced and committed, so it succeeded, or it is still there, or an admin took it away. */
function lostRows({ produced, left, audit }: Evidence, byRow: Map<string, Run[]>): Violation[] {
  const there = new Set(left.map(({ n }) => n));
  const removed = new Set(audit.filter(({ action }) => action !== 'job.retry').map(({ n }) => n));
  const names = new Set(produced.map(({ n }) => n));
  const lost = produced.filter(({ n, target }) => {
    if (isLossy(target)) return false; // lossy_account.ts
    const succeeded = byRow.get(n)?.some((run) => run.ended?.result === 'ok') || names.has(`${n}+`);
    return !succeeded && !there.has(n) && !removed.has(n);
  });
  return lost.map(({ n, target }) => ({ invariant: 'lost', text: `${n} of ${target}: committed, never ran, gone` }));
}

/** A row or a hook of a transaction that did not commit. */
function phantoms({ produced, lines, left }: Evidence, byRow: Map<string, Run[]>): Violation[] {
  const names = new Set(produced.map(({ n }) => n));
  const ran = [...byRow].filter(([n, runs]) => !names.has(n) && runs[0]!.slot === undefined).map(([n]) => n);
  const stands = left.filter(({ n }) => !names.has(n)).map(({ n }) => n);
  const hooked = lines.flatMap((line) => (line.what === 'hook' ? line.rows.filter((n) => !names.has(n)) : []));
  return [
    ...ran.map((n): Violation => ({ invariant: 'phantom', text: `${n} ran, but its transaction did not commit` })),
    ...stands.map((n): Violation => ({
      invariant: 'phantom',
      text: `${n} exists, but its transaction did not commit`,
    })),
    ...hooked.map((n): Violation => ({ invariant: 'phantom', text: `the hook of ${n} ran without its commit` })),
  ];
}

/** At most once: a run may follow only one that the target answered with a failure, or that was not sent. */
function doubledRows({ audit }: Evidence, byRow: Map<string, Run[]>): Violation[] {
  const retried = new Set(audit.filter(({ action }) => action === 'job.retry').map(({ n }) => n));
  const violations: Violation[] = [];
  for (const [n, runs] of byRow) {
    if (!isAtMostOnce(runs[0]!.target) || retried.has(n)) continue;
    runs.slice(1).forEach((run, index) => {
      const before = runs[index]!.ended;
      if (before && before.at <= run.at && before.result !== 'ok') return;
      violations.push({
        invariant: 'doubled',
        text: `${n} of ${run.target} ran on ${runs[index]!.pod}, again on ${run.pod}`,
      });
    });
  }
  return violations;
}

/**
 * Fast lane: the first arrivals of a key stand in the order of its versions. A row that succeeded under one mark with
 * later ones is sent again, after them, when its pod died before the outcome was written: at least once allows that.
 */
function disorder({ audit, left }: Evidence, runs: readonly Run[]): Violation[] {
  const retried = new Set(audit.filter(({ action }) => action === 'job.retry').map(({ n }) => n));
  // At most once: a record whose end is unknown may reach the broker long after its row went DEAD.
  const unknown = new Set(left.filter(({ target }) => target === 'kafka:once').map(({ n }) => n));
  const violations: Violation[] = [];
  const ordered = ({ partition, target }: Run): boolean => partition !== undefined || target.startsWith('kafka:');
  const keyed = runs.filter(
    (run) => run.key !== undefined && ordered(run) && !retried.has(run.n) && !unknown.has(run.n),
  );
  for (const [, ofKey] of groupBy(keyed, ({ target, key }) => `${target} ${key}`)) {
    const arrived = new Set<string>();
    let highest: Run | undefined;
    for (const run of ofKey) {
      const again = arrived.has(run.n);
      arrived.add(run.n);
      if (highest && run.version < highest.version && !again) {
        const text = `${run.n} (version ${run.version}) on ${run.pod} after ${highest.n} (version ${highest.version}) on ${highest.pod}`;
        violations.push({ invariant: 'order', text });
      }
      if (!highest || run.version > highest.version) highest = run;
    }
  }
  return violations;
}

/** Fast lane: every start stands in a term with enough lease left, and terms of a partition follow one another. */
function twoOwners(runs: readonly Run[]): Violation[] {
  const violations: Violation[] = [];
  const fast = runs.filter(({ partition }) => partition !== undefined);
  for (const run of fast) {
    if (run.term === 'none')
      violations.push({ invariant: 'owner', text: `${run.n} started on ${run.pod} without a term` });
    else if (run.room! < 0) {
      violations.push({ invariant: 'owner', text: `${run.n} started on ${run.pod} with ${run.room} ms of room` });
    }
  }
  for (const [partition, ofPartition] of groupBy(fast, (run) => String(run.partition))) {
    const over = new Set<string>();
    let current: string | undefined;
    for (const { term, n, pod } of ofPartition) {
      if (term === current) continue;
      if (over.has(term!)) {
        violations.push({
          invariant: 'owner',
          text: `${n} started on ${pod} in partition ${partition} after its term`,
        });
      }
      if (current !== undefined) over.add(current);
      current = term;
    }
  }
  return violations;
}

/**
 * Handlers of one exclusive code, and runs of one row of the long lane, are never side by side while the first one's
 * claim was good when it started.
 */
function twoExclusive({ pods }: Evidence, runs: readonly Run[]): Violation[] {
  const endOf = new Map(pods.map(({ name, endedAt }) => [name, endedAt]));
  const exclusive = runs.filter(({ target }) => target === 'long:exclusive' || target.startsWith('schedule:'));
  const claimed = runs.filter(({ target }) => target.startsWith('long:') && target !== 'long:exclusive');
  const groups = [
    ...groupBy(exclusive, ({ key, target }) => key ?? target),
    ...groupBy(claimed, ({ n, target }) => `${n} of ${target}`),
  ];
  return groups.flatMap(([code, ofCode]) =>
    ofCode.flatMap((run, index): Violation[] => {
      const beside = ofCode.slice(0, index).find((other) => {
        const ended = Math.min(other.ended?.at ?? Infinity, endOf.get(other.pod) ?? Infinity);
        return run.at < Math.min(ended, other.at + other.room! - CLOCK_TOLERANCE_MS);
      });
      if (!beside) return [];
      return [{ invariant: 'exclusive', text: `${run.n} on ${run.pod} beside ${beside.n} on ${beside.pod} (${code})` }];
    }),
  );
}

/** Any number of pods make one row per slot. */
function doubledSlots(runs: readonly Run[]): Violation[] {
  const slots = groupBy(
    runs.filter(({ slot }) => slot !== undefined),
    ({ target, slot }) => `${target} ${slot}`,
  );
  return [...slots].flatMap(([slot, ofSlot]) => {
    const ids = new Set(ofSlot.map(({ id }) => id));
    return ids.size > 1 ? [{ invariant: 'slot' as const, text: `${slot} became ${ids.size} rows` }] : [];
  });
}

/** `ctx.complete`: the next row of a chain was produced once. */
function brokenChains({ produced }: Evidence): Violation[] {
  return [...groupBy(produced, ({ n }) => n)]
    .filter(([, rows]) => rows.length > 1)
    .map(([n, rows]) => ({ invariant: 'chain', text: `${n} was produced ${rows.length} times` }));
}

/** `on_dead`: its writes exist once, if and only if the row is DEAD. */
function brokenMourning({ left, mourned, audit }: Evidence): Violation[] {
  const touched = new Set(audit.map(({ n }) => n));
  const counts = groupBy(mourned, (id) => id);
  return left
    .filter(({ status, target, n }) => status === 'DEAD' && MOURNED_TARGETS.includes(target) && !touched.has(n))
    .filter(({ id }) => counts.get(id)?.length !== 1)
    .map(({ n, id }) => ({
      invariant: 'mourning',
      text: `${n} is DEAD, on_dead wrote ${counts.get(id)?.length ?? 0} times`,
    }));
}

/** At least once: faults alone never make a row DEAD. */
function needlessDeaths({ left, produced, expectDead, audit }: Evidence): Violation[] {
  const rows = new Map(produced.map((row) => [row.n, row]));
  const touched = new Set(audit.map(({ n }) => n));
  return left
    .filter(({ status, target, n }) => status === 'DEAD' && !isAtMostOnce(target) && !touched.has(n))
    .filter(({ n }) => {
      const row = rows.get(n);
      return row !== undefined && !expectDead(row);
    })
    .map(({ n, target, last_error }) => ({ invariant: 'dead', text: `${n} of ${target} is DEAD: ${last_error}` }));
}

function troubles({ lines, pods, unreleased }: Evidence): Violation[] {
  const troubled = lines.flatMap((line): Violation[] =>
    line.what === 'trouble' ? [{ invariant: 'trouble', text: `${line.pod}: ${line.text}` }] : [],
  );
  const died = pods.flatMap(({ name, diedByItself }): Violation[] =>
    diedByItself ? [{ invariant: 'died', text: `${name}: ${diedByItself}` }] : [],
  );
  const kept: Violation[] =
    unreleased > 0
      ? [{ invariant: 'release', text: `${unreleased} partitions were not given back by a clean stop` }]
      : [];
  return [...troubled, ...died, ...kept];
}

function groupBy<T>(list: readonly T[], name: (value: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const value of list) {
    const group = groups.get(name(value));
    if (group) group.push(value);
    else groups.set(name(value), [value]);
  }
  return groups;
}
