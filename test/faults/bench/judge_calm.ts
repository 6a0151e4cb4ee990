/** Rules for rounds in which nothing was done to a process or to its connection to the database. Pure. */
import { groupBy, retriesOf, type Evidence, type Run, type Violation } from './evidence.js';
import { repeatsOf } from './judge_rows.js';
import { isAtMostOnce } from './pod_settings.js';

export function calmRules(evidence: Evidence, runs: readonly Run[]): Violation[] {
  if (!evidence.calm) return [];
  return [...repeated(evidence, runs), ...reclaimed(evidence), ...failedBusiness(evidence), ...calmDeaths(evidence)];
}

/** At least once: without a fault no row runs again after a good end, or beside itself (at most once: `doubled`, always). */
function repeated(evidence: Evidence, runs: readonly Run[]): Violation[] {
  const retries = retriesOf(evidence);
  const often = runs.filter(({ target }) => !isAtMostOnce(target) && !target.startsWith('kafka:'));
  return [...groupBy(often, ({ n }) => n)].flatMap(([n, ofRow]) =>
    repeatsOf(ofRow)
      .slice(retries(n))
      .map(({ run, before }): Violation => {
        const text = `${n} of ${run.target} ran on ${before.pod}, again on ${run.pod}, though nothing happened`;
        return { invariant: 'calm', text };
      }),
  );
}

/** No claim runs out. */
function reclaimed({ lines }: Evidence): Violation[] {
  return lines.flatMap((line): Violation[] =>
    line.what === 'reclaimed' ? [{ invariant: 'calm', text: `${line.pod} reclaimed ${line.rows} rows` }] : [],
  );
}

/** No business transaction fails. */
function failedBusiness({ lines }: Evidence): Violation[] {
  return lines.flatMap((line): Violation[] =>
    line.what === 'business' && line.error ? [{ invariant: 'calm', text: `${line.pod}: ${line.error}` }] : [],
  );
}

/** At most once as well: only what its target will never take is DEAD. */
function calmDeaths({ left, produced, expectDead }: Evidence): Violation[] {
  const rows = new Map(produced.map((row) => [row.n, row]));
  return left
    .filter(({ status, n }) => status === 'DEAD' && rows.has(n) && !expectDead(rows.get(n)!))
    .map(({ n, target, last_error }) => ({ invariant: 'calm', text: `${n} of ${target} is DEAD: ${last_error}` }));
}
