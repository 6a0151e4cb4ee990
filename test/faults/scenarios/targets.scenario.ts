import { FAST_TARGETS, LONG_TARGETS, PROBE_MS, type PlannedRow } from '../bench/pod_settings.js';
import { machineMs, readLedgers } from '../bench/ledger.js';
import type { Scenario } from '../bench/scenario.types.js';
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
    const batch = line.target === 'fast:batch'; // a probe is one row, what found it down was a batch
    if (!batch) counts.set(line.target, (counts.get(line.target) ?? 0) + 1);
  }
  return counts;
}

/** Rows that kill whoever runs them. */
export const poison: Scenario = {
  name: 'poison',
  about: 'rows whose handler kills its process: each ends DEAD, at most once at its first run, its neighbours run',
  prepare(world) {
    world.defaults = { max_crashes: 2 };
    // A row that runs in the process that a poison row of either lane kills is counted with it: with two crashes allowed
    // any may end. That none is lost and none runs twice where it must not is judged all the same.
    world.expectDead = () => true;
  },
  async run(world, length) {
    const targets = world.random.shuffle([...FAST_TARGETS, ...LONG_TARGETS]).slice(0, 3 + length);
    const rows = targets.map((target, index): PlannedRow => ({
      n: `poison ${index}`,
      target,
      behaviour: 'poison',
      ...(target === 'long:exclusive' && { code: 'x1' }),
      ...(target.startsWith('fast:') && { key: `poisoned ${target}` }),
    }));
    for (const { target } of rows) world.fault(`a poison row of ${target}`);
    const failed = await world.alive[0]!.call({ do: 'enqueue', items: rows });
    if (failed && failed !== 'the pod ended') world.violated('scenario', failed);
    const until = machineMs() + 60_000;
    while (machineMs() < until) {
      const left = await world.jobs.countDocuments({ 'payload.behaviour': 'poison', status: { $ne: 'DEAD' } });
      if (left === 0) return;
      if (world.alive.length < 2) await world.start();
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
    world.violated('scenario', 'poison rows did not end within a minute');
  },
};
