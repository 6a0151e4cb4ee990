/**
 * What must hold after every scenario, judged from the ledgers and the collections alone. Pure: the bench gathers, this
 * decides. Each rule names the invariant it speaks of; a violation says which rows, so that it can be looked into.
 */
import { groupBy, runsOf, type Evidence, type Run, type Violation } from './evidence.js';
import { calmRules } from './judge_calm.js';
import { orderRules } from './judge_order.js';
import { ownerRules } from './judge_owners.js';
import { rowRules } from './judge_rows.js';
import { slotRules } from './judge_slots.js';
import { engineOptions } from './pod_settings.js';

export {
  runsOf,
  type Evidence,
  type LeftRow,
  type PodStory,
  type ProducedRow,
  type ScheduleStory,
  type SlotRow,
  type Violation,
} from './evidence.js';

const GRACE_MS = engineOptions({ max_crashes: 1 }).shutdown_grace_ms!;

export function judge(evidence: Evidence): Violation[] {
  const runs = runsOf(evidence.lines);
  return [
    ...rowRules(evidence, runs),
    ...orderRules(evidence, runs),
    ...ownerRules(evidence, runs),
    ...slotRules(evidence, runs),
    ...calmRules(evidence, runs),
    ...troubles(evidence),
    ...keptPartitions(evidence),
    ...unfinished(evidence, runs),
  ];
}

/** Nobody dies by himself, and nothing is left unhandled. */
function troubles({ lines, pods }: Evidence): Violation[] {
  const troubled = lines.flatMap((line): Violation[] =>
    line.what === 'trouble' ? [{ invariant: 'trouble', text: `${line.pod}: ${line.text}` }] : [],
  );
  const died = pods.flatMap(({ name, diedByItself }): Violation[] =>
    diedByItself ? [{ invariant: 'died', text: `${name}: ${diedByItself}` }] : [],
  );
  return [...troubled, ...died];
}

/** A clean stop gives back what the pod owned. */
function keptPartitions({ unreleased }: Evidence): Violation[] {
  if (unreleased === 0) return [];
  return [{ invariant: 'release', text: `${unreleased} partitions were not given back by a clean stop` }];
}

/** A clean stop lets what runs come to its end, unless that takes longer than the grace. */
function unfinished({ lines }: Evidence, runs: readonly Run[]): Violation[] {
  const byPod = groupBy(runs, ({ pod }) => pod);
  return lines.flatMap((line) => {
    if (line.what !== 'stopped') return [];
    const open = (byPod.get(line.pod) ?? []).filter(({ ended, at }) => !ended && line.at - at < GRACE_MS);
    return open.map(({ n, target }): Violation => {
      return { invariant: 'release', text: `${line.pod} stopped in order while ${n} of ${target} ran` };
    });
  });
}
