/** Rules about who may run what: terms of partitions, claims of rows, exclusive codes. Pure. */
import { groupBy, type Evidence, type Run, type Violation } from './evidence.js';

/** Pods measure the database's clock each for itself, on a busy machine not very well. */
const CLOCK_TOLERANCE_MS = 1_000;

export function ownerRules(evidence: Evidence, runs: readonly Run[]): Violation[] {
  return [
    ...startsWithoutTerm(runs),
    ...startsWithoutRoom(runs),
    ...endedTerms(runs),
    ...succeededTerms(evidence, runs),
    ...twoExclusive(evidence, runs),
  ];
}

/** Fast lane: who starts a row owns its partition. */
function startsWithoutTerm(runs: readonly Run[]): Violation[] {
  return runs
    .filter(({ term }) => term === 'none')
    .map(({ n, pod }) => ({ invariant: 'owner', text: `${n} started on ${pod} without a term` }));
}

/** A start has lease left: for the longest send on the fast lane, at all on the long one. */
function startsWithoutRoom(runs: readonly Run[]): Violation[] {
  return runs
    .filter((run) => run.term !== 'none' && (isClaimed(run) || run.partition !== undefined) && run.room! < 0)
    .map(({ n, pod, room }) => ({ invariant: 'owner', text: `${n} started on ${pod} with ${room} ms of room` }));
}

const isClaimed = ({ target }: Run): boolean => target.startsWith('long:') || target.startsWith('schedule:');

/** Fast lane: terms of a partition follow one another. */
function endedTerms(runs: readonly Run[]): Violation[] {
  const violations: Violation[] = [];
  const fast = runs.filter(({ partition }) => partition !== undefined);
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

/** Fast lane: once a later term of the partition was seen in the database, the earlier one starts nothing, whatever its pod thinks. */
function succeededTerms({ terms }: Evidence, runs: readonly Run[]): Violation[] {
  const ofPartition = groupBy(terms, ({ partition }) => String(partition));
  const overSince = new Map<string, number>();
  for (const list of ofPartition.values()) {
    // One token stands for all that one look took: partitions of one token may go to others at different times.
    list.slice(1).forEach(({ at, partition }, index) => overSince.set(`${partition} ${list[index]!.term}`, at));
  }
  return runs
    .filter(({ partition, term, at }) => at > (overSince.get(`${partition} ${term}`) ?? Infinity))
    .map(({ n, pod, partition, at, term }) => {
      const late = Math.round(at - overSince.get(`${partition} ${term}`)!);
      return {
        invariant: 'owner',
        text: `${n} started on ${pod} ${late} ms after partition ${partition} had another term`,
      };
    });
}

/**
 * Handlers of one exclusive code, and runs of one row of the long lane, are never side by side while the first one's
 * claim was good when it started; nor at all where nothing was done to the processes, since claims are renewed.
 */
function twoExclusive({ pods, calm }: Evidence, runs: readonly Run[]): Violation[] {
  const endOf = new Map(pods.map(({ name, endedAt }) => [name, endedAt]));
  const exclusive = runs.filter(({ target }) => target === 'long:exclusive' || target.startsWith('schedule:'));
  const claimed = runs.filter(({ target }) => target.startsWith('long:') && target !== 'long:exclusive');
  const groups = [
    ...groupBy(exclusive, ({ key, target }) => key ?? target),
    ...groupBy(claimed, ({ n, target }) => `${n} of ${target}`),
  ];
  const goodUntil = (run: Run): number => (calm ? Infinity : run.at + run.room! - CLOCK_TOLERANCE_MS);
  return groups.flatMap(([code, ofCode]) =>
    ofCode.flatMap((run, index): Violation[] => {
      const beside = ofCode.slice(0, index).find((other) => {
        const ended = Math.min(other.ended?.at ?? Infinity, endOf.get(other.pod) ?? Infinity);
        return run.at < Math.min(ended, goodUntil(other));
      });
      if (!beside) return [];
      return [{ invariant: 'exclusive', text: `${run.n} on ${run.pod} beside ${beside.n} on ${beside.pod} (${code})` }];
    }),
  );
}
