import { setTimeout as sleep } from 'node:timers/promises';
import { KafkaStandIn, BROKERS, type Broker } from '../bench/kafka_stand_in.js';
import {
  KAFKA_TROUBLES,
  kafkaTroubles,
  troubleText,
  type KafkaTrouble,
  type OneAway,
} from '../bench/kafka_troubles.js';
import { SeededRandom } from '../bench/random.js';
import { Rests } from '../bench/rests.js';
import type { Scenario } from '../bench/scenario.types.js';
import { until } from '../bench/takeover.js';
import type { World } from '../bench/world.js';

const REQUEST_MS = 400;
/** At most once and at least once: what one of them met says nothing about the other. */
const TOPICS = ['once', 'again'] as const;
const TARGETS = TOPICS.map((topic) => `kafka:${topic}`);
/** A target that rests is tried by its probe alone. */
const MET_MS = 10_000;

const brokers = new WeakMap<World, KafkaStandIn>();

function begin(kafka: KafkaStandIn, trouble: KafkaTrouble, seed: string): void {
  switch (trouble.kind) {
    case 'one silent':
      kafka.become(trouble.broker, 'hole');
      return void (trouble.cut && kafka.cut(trouble.broker));
    case 'one gone':
      return kafka.become(trouble.broker, 'reset');
    case 'one slow':
      return kafka.become(trouble.broker, 'delay', trouble.delay_ms);
    case 'both away':
      return BROKERS.forEach((broker) => kafka.become(broker, trouble.network));
    default: {
      const sick = new SeededRandom(seed); // what is drawn here depends on time
      kafka.mood = () => (sick.chance(trouble.share) ? trouble.kind : 'well');
      if (trouble.moves) kafka.moveLeaders();
    }
  }
}

/** Lets it begin. Resolves when it has done all its harm, with false if it does not come to that. */
async function harm(world: World, rests: Rests, trouble: KafkaTrouble, begins: () => void): Promise<boolean> {
  const kafka = brokers.get(world)!;
  switch (trouble.kind) {
    case 'one silent':
    case 'one gone': {
      const before = kafka.connections(trouble.broker);
      begins();
      return (await oneTried(kafka, rests, trouble, before)) && otherServes(world, trouble);
    }
    case 'one slow':
      begins();
      await sleep(2 * trouble.delay_ms); // what was on its way when it began
      return more(kafka, trouble.broker);
    case 'both away':
      begins();
      return (await rests.found(1, MET_MS)) && bothAway(world);
    default: {
      const before = TOPICS.map((topic) => kafka.met(trouble.kind, topic));
      begins();
      return until(() => TOPICS.every((topic, at) => kafka.met(trouble.kind, topic) > before[at]!), MET_MS);
    }
  }
}

/** Records of both targets did not reach it, and nobody has the connections of before any more. */
async function oneTried(kafka: KafkaStandIn, rests: Rests, trouble: OneAway, before: number): Promise<boolean> {
  const { kind, broker } = trouble;
  const tried = (): boolean => kind === 'one gone' || kafka.connections(broker) > before;
  return (await rests.found(1, MET_MS)) && until(tried, MET_MS);
}

/**
 * The broker that is left leads all from now on, and takes all, whichever of both is asked first. Before, a target's rows
 * for the one that is away may keep its other rows waiting: it rests as a whole.
 */
async function otherServes(world: World, { kind, broker }: OneAway): Promise<boolean> {
  const kafka = brokers.get(world)!;
  const left = broker === 0 ? 1 : 0;
  kafka.takeOver(left);
  if (!(await more(kafka, left))) world.violated('scenario', `the broker that led all got no records while ${kind}`);
  return true;
}

/** The broker accepts records of both topics from here on. */
async function more(kafka: KafkaStandIn, broker: Broker): Promise<boolean> {
  const before = TOPICS.map((topic) => kafka.acceptedBy(broker, topic));
  return until(() => TOPICS.every((topic, at) => kafka.acceptedBy(broker, topic) > before[at]!), MET_MS);
}

/** Rows that were on their way may be charged, or die of it; probes that reach nobody charge nothing. */
async function bothAway(world: World): Promise<boolean> {
  const free = await until(async () => {
    const rests = await Rests.of(world, TARGETS);
    const before = await charges(world);
    return (await rests.found(2, MET_MS)) && (await charges(world)) === before;
  }, MET_MS);
  if (!free)
    world.violated('scenario', 'while both brokers were away no two probes of a target left every row uncharged');
  return free;
}

/** Attempts and deaths so far, of rows that cannot end well meanwhile. */
async function charges(world: World): Promise<string> {
  const rows = await world.jobs.find({ target: { $in: TARGETS } }).toArray();
  const dead = rows.filter(({ status }) => status === 'DEAD').length;
  return `${rows.reduce((sum, { attempts }) => sum + attempts, 0)} attempts, ${dead} dead`;
}

/** Brokers that hang, reset, are slow or gone and move their leaders, in front of both delivery modes. */
export const kafkaTrouble: Scenario = {
  name: 'kafka_trouble',
  about:
    'Kafka answers late or never, resets before and after it accepted, moves leaders; brokers are silent, gone or slow; at most once and at least once',
  async prepare(world) {
    const kafka = await KafkaStandIn.open(world.folder);
    kafka.lateMs = 3 * REQUEST_MS;
    brokers.set(world, kafka);
    world.defaults = { kafka: { brokers: kafka.brokers, request_timeout_ms: REQUEST_MS }, produce_per_s: 8 };
  },
  async run(world, length) {
    const kafka = brokers.get(world)!;
    const missing = new Set(KAFKA_TROUBLES);
    for (const [index, trouble] of kafkaTroubles(world.random, length).entries()) {
      world.fault(troubleText(trouble));
      const rests = await Rests.of(world, TARGETS);
      const begins = (): void => begin(kafka, trouble, `${world.seed} ${index}`);
      const harmed = harm(world, rests, trouble, begins);
      const [met] = await Promise.all([harmed, sleep(trouble.ms)]).finally(() => kafka.heal());
      if (met) missing.delete(trouble.kind);
      await sleep(trouble.well_ms);
      // A mood may meet what the one before it left.
      if (!('share' in trouble) && !(await rests.over(MET_MS)))
        world.violated('scenario', `a target rests ${MET_MS} ms after brokers were reached again`);
    }
    for (const kind of missing) world.violated('scenario', `Kafka: "${kind}" was not met by both targets`);
  },
  async release(world) {
    await brokers.get(world)?.close();
  },
};
