import { FAST_TARGETS, isAtMostOnce, isBatch, LONG_TARGETS, PROBE_MS, type PlannedRow } from '../bench/pod_settings.js';
import { machineMs, readLedgers } from '../bench/ledger.js';
import type { Scenario } from '../bench/scenario.types.js';
import { until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

const DOWN_MS = 5_000;
/** Rows of one transaction. */
const SLICE = 50;

/** Sends `count` rows of each target to a pod, in slices. */
async function pileUp(world: World, targets: readonly string[], count: number): Promise<void> {
  for (let from = 0; from < count; from += SLICE) {
    for (const target of targets) {
      const rows = Array.from({ length: Math.min(SLICE, count - from) }, (_, index): PlannedRow => {
        const n = `${target} #${from + index}`;
        const key = target.startsWith('fast:') && index % 2 === 0 ? { key: `${target} pile ${index % 10}` } : {};
        return { n, target, behaviour: 'ok', ...key, ...(target === 'long:exclusive' && { code: 'x1' }) };
      });
      const failed = await world.alive[0]!.call({ do: 'enqueue', items: rows });
      if (failed) world.violated('scenario', `a pile could not be enqueued: ${failed}`);
    }
  }
}

/** What stands between a target that is down and its rows: nothing is charged, and little is tried. */
export const targetDown: Scenario = {
  name: 'target_down',
  calm: true,
  about: 'targets of both lanes are down while many rows arrive; no attempt is spent, one probe at a time goes through',
  async run(world, length) {
    const down = world.random.shuffle([...FAST_TARGETS, ...LONG_TARGETS]).slice(0, 3);
    world.fault(`${down.join(', ')} down for ${DOWN_MS * length} ms under ${length} x 300 rows`);
    const from = machineMs();
    const ends = down.map((target) => world.takeDown(target));
    await pileUp(world, down, 100 * length);
    await world.wait(DOWN_MS * length);
    const charged = await world.jobs.countDocuments({
      target: { $in: down },
      'payload.behaviour': 'ok',
      attempts: { $gt: 0 },
    });
    if (charged > 0) world.violated('scenario', `${charged} rows were charged for a target that was down`);
    for (const end of ends) end();
    const tried = triedWhile(world, down, from, machineMs());
    // The first finding of every pod and cell may come at once; then it is one probe per interval over all pods.
    const most = world.alive.length * 8 + (machineMs() - from) / PROBE_MS;
    for (const [target, count] of tried) {
      if (count > most * 1.5)
        world.violated('scenario', `${target} was tried ${count} times while it was down, expected ${most}`);
    }
  },
};

function triedWhile(world: World, down: readonly string[], from: number, to: number): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of readLedgers(world.folder)) {
    if (line.what !== 'start' || line.at < from || line.at > to || !down.includes(line.target)) continue;
    const batch = isBatch(line.target); // a probe is one row, what found it down was a batch
    if (!batch) counts.set(line.target, (counts.get(line.target) ?? 0) + 1);
  }
  return counts;
}

/** Crashes after which a row goes DEAD. */
const MAX_CRASHES = 4;
const POISON_MS = 45_000;

const kindsOf = (world: World, once: boolean): string[] =>
  world.random.shuffle([...FAST_TARGETS, ...LONG_TARGETS].filter((target) => isAtMostOnce(target) === once));

const poisonRow = (target: string, index: number): PlannedRow => ({
  n: `poison ${index}`,
  target,
  behaviour: 'poison',
  ...(target === 'long:exclusive' && { code: 'x1' }),
  ...(target.startsWith('fast:') && { key: `poisoned ${target}` }),
});

/** Rows that kill whoever runs them: two at a time, since what runs beside several of them may be counted with each. */
export const poison: Scenario = {
  name: 'poison',
  about: 'rows whose handler kills its process: each ends DEAD, at most once at its first run, and nothing else does',
  prepare(world) {
    world.defaults = { max_crashes: MAX_CRASHES };
    world.expectDead = ({ behaviour }) => behaviour === 'poison' || behaviour === 'reject';
  },
  async run(world, length) {
    const [again, once] = [kindsOf(world, false), kindsOf(world, true)];
    for (let round = 0; round < length; round++) {
      const targets = [again[round % again.length]!, once[round % once.length]!];
      const rows = targets.map((target, index) => poisonRow(target, 2 * round + index));
      world.fault(`poison rows of ${targets.join(' and ')}; pods that die are started again`);
      const failed = await world.alive[0]!.call({ do: 'enqueue', items: rows });
      if (failed && failed !== 'the pod ended') world.violated('scenario', failed);
      const over = async (): Promise<boolean> => {
        if (world.alive.length < 2) await world.start();
        const living = { 'payload.behaviour': 'poison', status: { $ne: 'DEAD' as const } };
        return (await world.jobs.countDocuments(living)) === 0;
      };
      if (!(await until(over, POISON_MS))) world.violated('scenario', 'poison rows did not end');
    }
  },
  judge(world, lines) {
    const killed = lines.filter(({ what }) => what === 'poisoned').length;
    if (killed < MAX_CRASHES) world.violated('scenario', `poison rows killed ${killed} pods, expected ${MAX_CRASHES}`);
  },
};
