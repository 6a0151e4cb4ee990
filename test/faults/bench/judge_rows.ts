/** Rules about single rows: none is lost, none comes from nothing, none runs, goes on or dies more often than promised. Pure. */
import { groupBy, retriesOf, type Evidence, type ProducedRow, type Run, type Violation } from './evidence.js';
import { isAtMostOnce, isBatch, isLossy, MOURNED_TARGETS } from './pod_settings.js';

/** What the bench's handlers say when they answered or did not send: nobody is left in doubt of such a run. */
const WITHOUT_DOUBT = ['the target is down', 'away for a moment', 'an answered failure'];

export function rowRules(evidence: Evidence, runs: readonly Run[]): Violation[] {
  const byRow = groupBy(runs, ({ n }) => n);
  return [
    ...lostRows(evidence, byRow),
    ...phantoms(evidence, byRow),
    ...risen(evidence, byRow),
    ...doubledHooks(evidence),
    ...doubledRows(evidence, byRow),
    ...doubledChains(evidence),
    ...brokenChains(evidence, runs),
    ...mistakenMourning(evidence),
    ...needlessDeaths(evidence),
    ...undoubtedDeaths(evidence),
  ];
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

/** What an admin took away, and was seen gone, starts no more. */
function risen({ removed }: Evidence, byRow: Map<string, Run[]>): Violation[] {
  return removed.flatMap(({ n, at }) => {
    const after = byRow.get(n)?.find((run) => run.at > at);
    return after ? [{ invariant: 'phantom', text: `${n} started on ${after.pod} after an admin took it away` }] : [];
  });
}

/** The hook of a commit runs once. */
function doubledHooks({ lines }: Evidence): Violation[] {
  const hooked = lines.flatMap((line) => (line.what === 'hook' ? line.rows : []));
  return [...groupBy(hooked, (n) => n)]
    .filter(([, times]) => times.length > 1)
    .map(([n, times]) => ({ invariant: 'phantom', text: `the hook of ${n} ran ${times.length} times` }));
}

/** Runs that follow one which ended well, or whose end is not known: what a run that is repeated needs an excuse for. */
export function repeatsOf(runs: readonly Run[]): { run: Run; before: Run }[] {
  return runs.slice(1).flatMap((run, index) => {
    const before = runs[index]!;
    const answered = before.ended && before.ended.at <= run.at && before.ended.result !== 'ok';
    return answered ? [] : [{ run, before }];
  });
}

/** At most once: a run follows one that the target answered with a failure, or that was not sent, or an admin's retry. */
function doubledRows(evidence: Evidence, byRow: Map<string, Run[]>): Violation[] {
  const retries = retriesOf(evidence);
  return [...byRow].flatMap(([n, runs]) => {
    if (!isAtMostOnce(runs[0]!.target)) return [];
    return repeatsOf(runs)
      .slice(retries(n))
      .map(({ run, before }): Violation => {
        return { invariant: 'doubled', text: `${n} of ${run.target} ran on ${before.pod}, again on ${run.pod}` };
      });
  });
}

/** `ctx.complete`: the next row of a chain was produced once. */
function doubledChains({ produced }: Evidence): Violation[] {
  return [...groupBy(produced, ({ n }) => n)]
    .filter(([, rows]) => rows.length > 1)
    .map(([n, rows]) => ({ invariant: 'chain', text: `${n} was produced ${rows.length} times` }));
}

/** `ctx.complete`: a run that ended well has its next row, and a row that has one is gone. */
function brokenChains({ produced, left }: Evidence, runs: readonly Run[]): Violation[] {
  const rows = new Map(produced.map((row) => [row.n, row]));
  const ended = new Set(runs.filter((run) => run.ended?.result === 'ok').map(({ n }) => n));
  const stopped = [...ended].filter((n) => chains(rows.get(n)) && !rows.has(`${n}+`));
  const stayed = left.filter(({ n }) => chains(rows.get(n)) && rows.has(`${n}+`));
  return [
    ...stopped.map((n): Violation => ({ invariant: 'chain', text: `${n} completed, but its next row does not exist` })),
    ...stayed.map(({ n, status }): Violation => ({ invariant: 'chain', text: `${n} went on, but it is ${status}` })),
  ];
}

/** Batches answer for many rows and Kafka's records have no handler: neither completes. */
const chains = (row: ProducedRow | undefined): boolean =>
  row?.behaviour === 'complete' && !isBatch(row.target) && !row.target.startsWith('kafka:');

/** `on_dead`: its writes exist once for each time that the row became DEAD, and never otherwise. */
function mistakenMourning({ produced, left, mourned, audit }: Evidence): Violation[] {
  const mourns = new Set(produced.filter(({ target }) => MOURNED_TARGETS.includes(target)).map(({ n }) => n));
  const dead = left.filter(({ status, target }) => status === 'DEAD' && MOURNED_TARGETS.includes(target));
  const there = new Map(dead.map(({ id }) => [id, 1]));
  const names = new Map([...left, ...audit].map(({ id, n }) => [id, n]));
  const written = groupBy(mourned, (id) => id);
  // A retry and a skip found the row DEAD.
  const deaths = audit.filter(({ action, n }) => ['job.retry', 'job.skip'].includes(action) && mourns.has(n));
  const ended = groupBy(deaths, ({ id }) => id);
  return [...new Set([...written.keys(), ...there.keys(), ...ended.keys()])].flatMap((id): Violation[] => {
    const expected = (ended.get(id)?.length ?? 0) + (there.get(id) ?? 0);
    const found = written.get(id)?.length ?? 0;
    if (found === expected) return [];
    return [
      {
        invariant: 'mourning',
        text: `${names.get(id) ?? id} was DEAD ${expected} times, on_dead wrote ${found} times`,
      },
    ];
  });
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

/** At most once: only doubt makes a row DEAD, never a target that is down or that may be asked again. */
function undoubtedDeaths({ left }: Evidence): Violation[] {
  return left
    .filter(({ status, target }) => status === 'DEAD' && isAtMostOnce(target))
    .filter(({ last_error = '' }) => WITHOUT_DOUBT.some((text) => last_error.includes(text)))
    .map(({ n, target, last_error }) => ({ invariant: 'dead', text: `${n} of ${target} is DEAD: ${last_error}` }));
}
