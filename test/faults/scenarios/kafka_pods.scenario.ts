import { KafkaStandIn } from '../bench/kafka_stand_in.js';
import { FAST_KINDS } from '../bench/kinds.js';
import { KAFKA_TARGETS, FAST_TARGETS, termMs } from '../bench/pod_settings.js';
import type { Scenario } from '../bench/scenario.types.js';
import { expectTakeover, termsOf, until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';
import { TRAPS } from './lost_replies.scenario.js';

const REQUEST_MS = 500;
/** An answer takes so long, so that whatever happens to a pod finds records on their way. */
const ANSWER_MS = 200;
const HARMS = ['kill', 'freeze', 'cut'] as const;
const LOST = TRAPS.filter(({ name }) => name === 'mark' || name.startsWith('outcome'));

const brokers = new WeakMap<World, KafkaStandIn>();

/** Records that were accepted and not answered yet are those of which nobody knows. */
async function sending(world: World): Promise<void> {
  const kafka = brokers.get(world)!;
  const late = (): number => kafka.met('late', 'once') + kafka.met('late', 'again');
  const before = late();
  const sent = await until(() => late() > before);
  if (!sent) world.violated('scenario', 'nothing was sent to Kafka');
}

async function harm(world: World, kind: (typeof HARMS)[number]): Promise<void> {
  const before = await world.wait(500, 1_500);
  const index = world.random.int(0, 1);
  const pod = world.alive[index]!;
  const network = world.random.pick(['refuse', 'stall', 'hole'] as const);
  const ms = termMs(pod.settings) + world.random.int(600, 1_500);
  const terms = await termsOf(world, pod);
  await sending(world);
  if (kind === 'kill') {
    pod.kill();
    world.fault(`after ${before} ms pod ${index} is killed, and another one starts`);
    await world.boot(1);
  } else {
    if (kind === 'freeze') pod.freeze();
    else pod.proxy.become(network);
    await world.wait(ms);
    if (kind === 'freeze') pod.resume();
    else pod.proxy.become('pass');
    world.fault(`after ${before} ms pod ${index}: ${kind === 'cut' ? network : kind} for ${ms} ms`);
  }
  await expectTakeover(world, pod, terms);
}

async function loseReplies(world: World): Promise<void> {
  for (const trap of world.random.shuffle(LOST)) {
    const times = world.random.int(1, 3);
    for (const { proxy } of world.alive) proxy.loseReplies(trap, times);
    world.fault(`both pods lose ${times} replies of ${trap.name}`);
    await world.wait(200, 600);
  }
}

/** Replies that somebody must have lost, and nobody has. */
function missing(world: World): string[] {
  const lost = new Set(world.pods.flatMap(({ proxy }) => proxy.lost));
  return ['mark', 'outcome: delete'].filter((name) => !lost.has(name));
}

/** Pods die, stand still and lose the database while records are on their way. */
export const kafkaPods: Scenario = {
  name: 'kafka_pods',
  kinds: FAST_KINDS,
  about: 'pods that send to Kafka are killed, frozen past their lease, cut from the database, and lose its replies',
  async prepare(world) {
    const kafka = await KafkaStandIn.open(world.folder);
    kafka.lateMs = ANSWER_MS;
    kafka.mood = () => 'late';
    brokers.set(world, kafka);
    world.defaults = {
      kafka: { brokers: kafka.brokers, request_timeout_ms: REQUEST_MS },
      targets: [...KAFKA_TARGETS, ...KAFKA_TARGETS, ...FAST_TARGETS],
      produce_per_s: 6,
    };
  },
  async run(world, length) {
    for (let round = 0; round < length; round++) {
      for (const kind of world.random.shuffle(HARMS)) await harm(world, kind);
      await loseReplies(world);
      await until(() => missing(world).length === 0);
    }
  },
  judge(world, lines) {
    for (const target of ['kafka:once', 'kafka:again']) {
      const sent = lines.filter((line) => line.what === 'start' && line.target === target).length;
      if (sent < 20) world.violated('scenario', `only ${sent} records of ${target} were accepted`);
    }
    for (const name of missing(world)) world.violated('scenario', `no reply of ${name} was lost`);
  },
  async release(world) {
    await brokers.get(world)?.close();
  },
};
