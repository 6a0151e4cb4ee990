/** What is done to Kafka in a round, drawn before it begins: the schedule follows from the seed, however long it takes. Pure. */
import { BROKERS, type Broker, type Mood } from './kafka_stand_in.js';
import type { SeededRandom } from './random.js';

interface Times {
  /** It lasts so long at least. */
  readonly ms: number;
  /** Kafka is well so long afterwards, at least. */
  readonly well_ms: number;
}

/** Both brokers take records so, this share of the requests. */
export interface Moody extends Times {
  readonly kind: Exclude<Mood, 'well'>;
  readonly share: number;
  readonly moves: boolean;
}

/** A broker is a black hole, or refuses connections, until the other one leads all. */
export interface OneAway extends Times {
  readonly kind: 'one silent' | 'one gone';
  readonly broker: Broker;
  /** Of a silent one: nobody is connected to it when it begins. */
  readonly cut: boolean;
}

export interface OneSlow extends Times {
  readonly kind: 'one slow';
  readonly broker: Broker;
  /** Each way. With an answer both ways still come within a request's time. */
  readonly delay_ms: number;
}

export interface BothAway extends Times {
  readonly kind: 'both away';
  readonly network: 'hole' | 'reset';
}

export type KafkaTrouble = Moody | OneAway | OneSlow | BothAway;

const MOODS: readonly Moody['kind'][] = ['late', 'mute', 'reset', 'deaf', 'hang_up', 'stale'];
const NETWORKS = ['one silent', 'one gone', 'one slow', 'both away'] as const;

/** Each must be met in every round. */
export const KAFKA_TROUBLES: readonly KafkaTrouble['kind'][] = [...MOODS, ...NETWORKS];

export function kafkaTroubles(random: SeededRandom, length: number): KafkaTrouble[] {
  return Array.from({ length }, () => random.shuffle([...MOODS, ...MOODS, ...NETWORKS]))
    .flat()
    .map((kind) => draw(kind, random));
}

function draw(kind: KafkaTrouble['kind'], random: SeededRandom): KafkaTrouble {
  const times = { ms: random.int(300, 600), well_ms: random.int(150, 300) };
  switch (kind) {
    case 'one silent':
    case 'one gone':
      return { kind, ...times, broker: random.pick(BROKERS), cut: random.chance(0.5) };
    case 'one slow':
      return { kind, ...times, broker: random.pick(BROKERS), delay_ms: random.pick([30, 90, 150]) };
    case 'both away':
      return { kind, ...times, network: random.pick(['hole', 'reset'] as const) };
    default:
      return { kind, ...times, share: random.pick([0.3, 1]), moves: random.chance(0.3) };
  }
}

export function troubleText(trouble: KafkaTrouble): string {
  const { ms } = trouble;
  switch (trouble.kind) {
    case 'one silent':
      return `broker ${trouble.broker} ${trouble.cut ? 'resets its connections and ' : ''}is a black hole for ${ms} ms, at last without a part to lead`;
    case 'one gone':
      return `broker ${trouble.broker} resets its connections and takes none for ${ms} ms, at last without a part to lead`;
    case 'one slow':
      return `broker ${trouble.broker} is ${trouble.delay_ms} ms away for ${ms} ms`;
    case 'both away':
      return `both brokers are ${trouble.network === 'hole' ? 'black holes' : 'gone'} for ${ms} ms`;
    default:
      return `${trouble.moves ? 'the leaders move; ' : ''}Kafka is ${trouble.kind} for ${ms} ms, ${trouble.share * 100} % of the time`;
  }
}
