import { setTimeout as sleep } from 'node:timers/promises';
import { runsOf } from '../bench/invariants.js';
import type { PartitionDoc } from '../../../src/jobs/store/jobs.schema.js';
import { machineMs, readLedgers } from '../bench/ledger.js';
import type { PodProcess } from '../bench/pod_process.js';
import { isNew, LEASE_MS, NEW_TARGETS } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { expectTakeover, namesOf, termsOf, until } from '../bench/takeover.js';
import type { Wishes, World } from '../bench/world.js';

const FAST_MS = 700;
const LONG_MS = 1_400;
/** Runs that go on for longer do not end between the look and the kill. */
const MARGIN_MS = 200;
/** What a pod had sent when it was killed is still carried out. */
const LATE_MS = 300;
/** So many rows of each target at once: some of them fall into the pod's own share of the partitions. */
const WAVE = 12;
const WAVE_MS = 3_000;
const MOST_WAVES = 8;

/** It enqueues what it alone knows, and takes its time with it. */
const FIRST: Wishes = {
  version: 2,
  targets: NEW_TARGETS,
  produce_per_s: 12,
  handler_ms: FAST_MS,
  long_handler_ms: LONG_MS,
};

/** What a killed pod left in flight of the targets that only its version knows. */
interface Left {
  /** Names of rows. */
  rows: string[];
  marks: string[];
  claims: string[];
  /** Of the rows: those that were charged with a crash before, or were DEAD. */
  charged: number;
}

const openRuns = (world: World, { name }: PodProcess): { n: string; target: string; at: number }[] =>
  runsOf(readLedgers(world.folder)).filter((run) => run.pod === name && !run.ended && isNew(run.target));

/** Rows of each of them run, and go on for a while. */
function isInTheMiddle(world: World, pod: PodProcess): boolean {
  const lasting = openRuns(world, pod).filter(({ at, target }) => {
    const ms = target.startsWith('fast:') ? FAST_MS : LONG_MS;
    return machineMs() - at < ms - MARGIN_MS;
  });
  return NEW_TARGETS.every((target) => lasting.some((run) => run.target === target));
}

/** Its own share is small, and by chance alone rows of all targets rarely run in it at the same moment. */
async function fillUp(world: World, pod: PodProcess): Promise<void> {
  for (let wave = 1; wave <= MOST_WAVES; wave++) {
    const items = NEW_TARGETS.flatMap((target) =>
      Array.from({ length: target.startsWith('fast:') ? WAVE : 1 }, (_, index) => {
        return { n: `${pod.name}-wave-${wave}-${target}-${index}`, target, behaviour: 'ok' as const };
      }),
    );
    const failed = await pod.call({ do: 'enqueue', items });
    if (failed) world.violated('scenario', `could not be enqueued: ${failed}`);
    if (await until(() => isInTheMiddle(world, pod), WAVE_MS)) return;
  }
}

const partitionsOf = (world: World) => world.connection.collection<PartitionDoc>('job_partitions');

const chargedOf = (world: World, rows: readonly string[]): Promise<number> =>
  world.jobs.countDocuments({ 'payload.n': { $in: [...rows] }, $or: [{ crashes: { $gt: 0 } }, { status: 'DEAD' }] });

async function marksOf(world: World): Promise<string[]> {
  const partitions = await partitionsOf(world).find().toArray();
  return partitions.flatMap(({ inflight }) => inflight.flatMap(({ target, token }) => (isNew(target) ? token : [])));
}

async function leftBy(world: World, pod: PodProcess): Promise<Left> {
  const open = openRuns(world, pod);
  for (const target of NEW_TARGETS) {
    if (!open.some((run) => run.target === target)) world.violated('scenario', `nothing of ${target} was in flight`);
  }
  const running = await world.jobs.find({ status: 'RUNNING', claimed_by: namesOf(pod) }).toArray();
  const rows = open.map(({ n }) => n);
  return {
    rows,
    marks: await marksOf(world),
    claims: running.flatMap(({ target, claim_token }) => (isNew(target) && claim_token ? claim_token : [])),
    charged: await chargedOf(world, rows),
  };
}

/** Pods that do not know a target cannot tell what it allows: they charge nothing, and keep what tells of its runs. */
async function expectUntouched(world: World, when: string, { rows, marks, claims, charged }: Left): Promise<void> {
  const stand = new Set(await marksOf(world));
  const pulled = marks.filter((token) => !stand.has(token)).length;
  // One token stands for all that one look claimed.
  const claim = { status: 'RUNNING' as const, target: { $in: [...NEW_TARGETS] }, claim_token: { $in: claims } };
  const claimed = await world.jobs.countDocuments(claim);
  const more = (await chargedOf(world, rows)) - charged;
  if (pulled > 0) world.violated('scenario', `${when}: ${pulled} of ${marks.length} marks are gone`);
  if (claimed < claims.length)
    world.violated('scenario', `${when}: ${claimed} of ${claims.length} rows are still claimed`);
  if (more > 0) world.violated('scenario', `${when}: ${more} rows were charged by pods that do not know their target`);
}

/** What they become then is judged as in every round. */
async function expectJudged(world: World, { marks, claims }: Left): Promise<void> {
  const judged = await until(async () => {
    const standing = await partitionsOf(world).countDocuments({ 'inflight.token': { $in: marks } });
    return standing + (await world.jobs.countDocuments({ claim_token: { $in: claims } })) === 0;
  });
  if (!judged) world.violated('scenario', 'nobody judged what the killed pod had left');
}

async function stop(pods: readonly PodProcess[]): Promise<void> {
  for (const pod of pods) pod.terminate();
  await Promise.all(pods.map((pod) => pod.ended));
}

/** The first pod of a new version dies, and for a while nobody is there who knows what it left in flight. */
async function crash(world: World): Promise<void> {
  const [one, other] = world.alive as [PodProcess, PodProcess];
  const [first] = (await world.boot(1, FIRST)) as [PodProcess];
  const before = await world.wait(300, 1_200);
  const terms = await termsOf(world, first);
  await fillUp(world, first);
  first.kill();
  await first.ended;
  await sleep(LATE_MS);
  const left = await leftBy(world, first);
  const alone = await world.wait(LEASE_MS + 500, LEASE_MS + 1_500);
  world.fault(`${before} ms after its start a pod of version 2 is killed; ${alone} ms later one of version 1 stops`);
  await expectTakeover(world, first, terms);
  await expectUntouched(world, 'after the takeover', left);
  await stop([one]);
  await expectUntouched(world, 'after a clean stop', left);
  await world.boot(1, { version: 2 });
  await stop([other]);
  await world.boot(1, { version: 2 });
  await expectJudged(world, left);
}

export const versionCrash: Scenario = {
  name: 'version_crash',
  about: 'the only pod of a new version is killed; old ones, which do not know its targets, take over and stop',
  async run(world, length) {
    await crash(world);
    for (let round = 1; round < length; round++) {
      const newer = world.alive;
      await world.boot(2);
      await stop(newer);
      await crash(world);
    }
  },
};
