/** Rules about the order of a key's rows. Pure. */
import { groupBy, retriesOf, type Evidence, type Run, type Violation } from './evidence.js';
import { isBatch } from './pod_settings.js';

interface Overtaken {
  run: Run;
  by: Run;
}

export function orderRules({ left, ...evidence }: Evidence, runs: readonly Run[]): Violation[] {
  const retries = retriesOf(evidence);
  // At most once: a record whose end is unknown may reach the broker long after its row went DEAD.
  const unknown = new Set(left.filter(({ target }) => target === 'kafka:once').map(({ n }) => n));
  const keyed = runs.filter((run) => run.key !== undefined && isOrdered(run) && !unknown.has(run.n));
  return [...groupBy(keyed, ({ target, key }) => `${target} ${key}`).values()].flatMap((ofKey) =>
    [...groupBy(overtakings(ofKey), ({ run }) => run.n)].flatMap(([n, found]) =>
      // A DEAD row holds nothing: for each time that an admin brought it back, others may have passed it before.
      found.slice(retries(n)).map(describe),
    ),
  );
}

/**
 * Starts of a row that was still to run when a later version started. Between two of its starts that is so all the time;
 * before its first one as well, since versions are given in the order of the commits.
 */
function overtakings(ofKey: readonly Run[]): Overtaken[] {
  const last = new Map<string, number>();
  let highest: Run | undefined;
  return ofKey.flatMap((run, index): Overtaken[] => {
    const before = last.get(run.n);
    last.set(run.n, index);
    const by = before === undefined ? highest : overtakerOf(ofKey[before]!, ofKey.slice(before + 1, index));
    if (!highest || run.version > highest.version) highest = run;
    return by && by.version > run.version ? [{ run, by }] : [];
  });
}

/** Of the starts since a row's last one: one that had to wait for it. Kafka is held to first arrivals: it sends again. */
function overtakerOf(before: Run, since: readonly Run[]): Run | undefined {
  if (before.target.startsWith('kafka:')) return undefined;
  return since.find((run) => run.version > before.version && !underOneMark(before, run));
}

/**
 * Outcomes are written per mark. Under one, a version may follow when the one before it ended well, whose row still
 * stands then, or goes in the same call of a batch; should the pod die, all of them are sent again.
 */
function underOneMark(before: Run, { pod, term, at }: Run): boolean {
  if (before.pod !== pod || before.term !== term) return false;
  const ended = before.ended && before.ended.at <= at ? before.ended.result : undefined;
  return isBatch(before.target) ? ended === undefined : ended === 'ok';
}

const isOrdered = ({ partition, target }: Run): boolean => partition !== undefined || target.startsWith('kafka:');

const named = ({ n, version, pod }: Run): string => `${n} (version ${version}) on ${pod}`;

const describe = ({ run, by }: Overtaken): Violation => ({
  invariant: 'order',
  text: `${named(run)} after ${named(by)}`,
});
