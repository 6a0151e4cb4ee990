import { Redis } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { TestRedis } from '../../support/redis_server.js';
import { addedJob } from '../bench/bull_wire.js';
import { machineMs, readLedgers, type LedgerLine } from '../bench/ledger.js';
import { retriedJobs, untoldJobs } from '../bench/lossy_account.js';
import type { ProducedRow } from '../bench/invariants.js';
import { isLossy, LEASE_MS } from '../bench/pod_settings.js';
import type { PodProcess } from '../bench/pod_process.js';
import type { Scenario } from '../bench/scenario.types.js';
import { TcpProxy, type Network } from '../bench/tcp_proxy.js';
import { quantile, waitsOf } from '../bench/waits.js';
import type { World } from '../bench/world.js';

const TROUBLES: readonly (Network | 'lost replies')[] = ['delay', 'hole', 'reset', 'lost replies'];
/** Jobs per trouble whose hand-over is carried out and not answered. */
const LOST_REPLIES = 4;
const QUEUE = 'bull:side_effect_lossy';
/** The engine's `lossy.handover_timeout_ms`, and what a busy machine adds to it. */
const HANDOVER_MS = 200;
const ROOM_MS = 600;
const SLOWEST_ROOM_MS = 1_500;
/** Connections try again every 2 s at the latest. */
const FLOW_MS = 10_000;

interface Surroundings {
  redis: TestRedis;
  proxy: TcpProxy;
  /** Messages between pods that Redis was given. */
  published: number;
  trouble: { from: number; to: number }[];
}

const of = new WeakMap<World, Surroundings>();

/** Lossy jobs that nobody has taken yet, or that a pod took when its connection broke. */
async function waitingIn({ url }: TestRedis): Promise<string[]> {
  const client = new Redis(url);
  try {
    const lists = await Promise.all(
      ['wait', 'active', 'paused'].map((name) => client.lrange(`${QUEUE}:${name}`, 0, -1)),
    );
    const jobs = await Promise.all(lists.flat().map((id) => client.hget(`${QUEUE}:${id}`, 'data')));
    return jobs.flatMap((data) => (data ? [(JSON.parse(data) as { payload: { n: string } }).payload.n] : []));
  } finally {
    client.disconnect();
  }
}

/** What Redis may cost those who enqueue, and those who wait for a durable row. */
function judgeWaits(world: World, lines: readonly LedgerLine[], produced: readonly ProducedRow[]): void {
  const { trouble } = of.get(world)!;
  const business = lines.flatMap((line) => (line.what === 'business' ? [line] : []));
  const during = business.filter(({ at, ms }) => trouble.some(({ from, to }) => at > from && at - ms < to));
  const usual = business.filter((line) => !during.includes(line));
  const refused = business.filter(({ error }) => error !== undefined);
  if (refused.length > 0) world.violated('lossy', `${refused.length} enqueues failed: ${refused[0]!.error}`);
  const of90 = (list: typeof business): number =>
    quantile(
      list.map(({ ms }) => ms),
      0.9,
    );
  const worst = (list: typeof business): number => Math.max(0, ...list.map(({ ms }) => ms));
  const [slow, most] = [of90(during), of90(usual)];
  if (during.length < 10) world.violated('scenario', `only ${during.length} transactions while Redis was in trouble`);
  if (slow > most + HANDOVER_MS + ROOM_MS || worst(during) > worst(usual) + HANDOVER_MS + SLOWEST_ROOM_MS)
    world.violated(
      'lossy',
      `transactions took ${slow} ms, at most ${worst(during)} ms while Redis was in trouble, else ${most} and ${worst(usual)} ms`,
    );
  const durable = new Set(produced.filter(({ target }) => !isLossy(target)).map(({ n }) => n));
  const waits = trouble.flatMap((time) => waitsOf(lines, { ...time, counts: (n) => durable.has(n) }));
  if (quantile(waits, 0.5) > LEASE_MS)
    world.violated('lossy', `durable rows waited ${quantile(waits, 0.5)} ms while Redis was in trouble`);
}

/** A clean stop waits for nobody either. Its producer first: what a stop cuts off is not Redis's doing. */
async function stopQuietly(world: World, pod: PodProcess): Promise<void> {
  pod.tell({ do: 'produce', per_s: 0 });
  await world.wait(2 * HANDOVER_MS);
  pod.terminate();
  await pod.ended;
}

/** Connections come back by themselves, and lossy jobs run again. */
async function flowsAgain(world: World): Promise<void> {
  const healed = machineMs();
  while (machineMs() < healed + FLOW_MS) {
    await sleep(200);
    const lines = readLedgers(world.folder);
    if (lines.some((line) => line.what === 'start' && isLossy(line.target) && line.at > healed)) return;
  }
  world.violated('lossy', `no lossy job ran within ${FLOW_MS} ms after Redis was well again`);
}

/** Redis is slow, silent or gone for a while. */
async function disturb(world: World, network: Network, length: number): Promise<string> {
  const { proxy } = of.get(world)!;
  proxy.become(network);
  const boots = network === 'hole';
  // A connection that says nothing is given up after 5 s: only longer holes show that.
  const ms = length > 1 ? world.random.int(1_000, 8_000) : world.random.int(1_000, 2_000);
  const [guest] = boots ? await world.boot(1) : [];
  await world.wait(ms);
  if (guest) await stopQuietly(world, guest);
  proxy.become('pass');
  const about = network === 'delay' ? `answers ${proxy.delayMs} ms late` : network;
  return `${about} for ${ms} ms${boots ? ' while a pod boots and stops' : ''}`;
}

/** Redis took a job, and whoever handed it over was cut off before it heard so. */
async function loseReplies(world: World): Promise<string> {
  const { proxy } = of.get(world)!;
  const pauses: number[] = [];
  for (let n = 1; n <= LOST_REPLIES; n++) {
    const known = proxy.lost.length;
    proxy.loseReply(addedJob);
    for (const until = machineMs() + FLOW_MS; proxy.lost.length === known && machineMs() < until;) await sleep(20);
    if (proxy.lost.length === known) world.violated('scenario', `no reply to a lossy job was there to be lost`);
    pauses.push(await world.wait(100, 600));
  }
  return `the replies to ${LOST_REPLIES} lossy jobs are lost, the next thing ${pauses.join(', ')} ms after each`;
}

/** Redis makes things fast, and takes what may be lost. Nothing else may ever depend on it. */
export const redisTrouble: Scenario = {
  name: 'redis_trouble',
  calm: true,
  about: 'Redis is slow, silent, gone or does not answer; lossy jobs may be lost but are counted, others go on',
  async prepare(world) {
    const redis = await TestRedis.start();
    const surroundings: Partial<Surroundings> = { redis, published: 0, trouble: [] };
    surroundings.proxy = await TcpProxy.open(redis.port, (chunk) => {
      if (chunk.includes('publish')) surroundings.published!++;
    });
    of.set(world, surroundings as Surroundings);
    world.defaults = { redis_url: `redis://127.0.0.1:${surroundings.proxy.port}`, produce_per_s: 10 };
  },
  async run(world, length) {
    const { proxy, trouble } = of.get(world)!;
    for (let round = 0; round < length; round++) {
      for (const kind of world.random.shuffle(TROUBLES)) {
        proxy.delayMs = world.random.pick([30, 150, 500]);
        const from = machineMs();
        const about = kind === 'lost replies' ? await loseReplies(world) : await disturb(world, kind, length);
        trouble.push({ from, to: machineMs() });
        await flowsAgain(world);
        const after = await world.wait(600, 1_200);
        world.fault(`Redis: ${about}, then well for ${after} ms`);
      }
    }
  },
  async judge(world, lines) {
    const { redis, published } = of.get(world)!;
    const produced = (await world.connection.collection('produced').find().toArray()) as unknown as ProducedRow[];
    const ran = new Set(lines.flatMap((line) => (line.what === 'start' && isLossy(line.target) ? [line.n] : [])));
    if (ran.size < 5) world.violated('scenario', `only ${ran.size} lossy jobs ran`);
    if (published === 0) world.violated('scenario', 'no hint went through Redis');
    if (!lines.some(({ what }) => what === 'dropped')) world.violated('scenario', 'no lossy job was dropped');
    world.violations.push(...untoldJobs(produced, lines, await waitingIn(redis)), ...retriedJobs(lines));
    judgeWaits(world, lines, produced);
  },
  async release(world) {
    await of.get(world)?.proxy.close();
    await of.get(world)?.redis.dispose();
  },
};
