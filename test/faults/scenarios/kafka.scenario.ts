import { setTimeout as sleep } from 'node:timers/promises';
import { KafkaStandIn, type Mood } from '../bench/kafka_stand_in.js';
import { SeededRandom } from '../bench/random.js';
import type { Scenario } from '../bench/scenario.types.js';
import type { World } from '../bench/world.js';

const REQUEST_MS = 400;
const MOODS: readonly Mood[] = ['late', 'mute', 'reset', 'deaf', 'hang_up', 'stale'];

const brokers = new WeakMap<World, KafkaStandIn>();

/** A target that rests is tried by its probe alone: until somebody met the mood, or for a while. */
async function met(kafka: KafkaStandIn, mood: Mood): Promise<void> {
  const before = kafka.moods.get(mood);
  for (let left = 100; left > 0 && kafka.moods.get(mood) === before; left--) await sleep(100);
}

/** A broker that hangs, resets, answers late and moves its leaders, in front of both delivery modes. */
export const kafkaTrouble: Scenario = {
  name: 'kafka_trouble',
  about:
    'Kafka answers late or never, resets before and after it accepted, and moves leaders; at most once and at least once',
  async prepare(world) {
    const kafka = await KafkaStandIn.open(world.folder);
    kafka.lateMs = 3 * REQUEST_MS;
    brokers.set(world, kafka);
    world.defaults = { kafka: { brokers: kafka.brokers, request_timeout_ms: REQUEST_MS }, produce_per_s: 8 };
  },
  async run(world, length) {
    const kafka = brokers.get(world)!;
    for (let round = 0; round < 2 * length; round++) {
      for (const mood of world.random.shuffle(MOODS)) {
        const share = world.random.pick([0.3, 1]);
        const sick = new SeededRandom(`${world.seed} ${round} ${mood}`); // what is drawn here depends on time
        kafka.mood = () => (sick.chance(share) ? mood : 'well');
        const moves = world.random.chance(0.3);
        if (moves) kafka.moveLeaders();
        world.fault(`${moves ? 'the leaders move; ' : ''}Kafka is ${mood}, ${share * 100} % of the time`);
        await world.wait(400, 900);
        await met(kafka, mood);
        kafka.mood = () => 'well';
        await world.wait(500, 800);
      }
    }
    for (const mood of MOODS) {
      if (!kafka.moods.has(mood)) world.violated('scenario', `nothing was sent while Kafka was ${mood}`);
    }
  },
  async release(world) {
    await brokers.get(world)?.close();
  },
};
