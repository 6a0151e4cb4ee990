// All benches by name, in the order of `all`.
import type { Bench } from './bench.types.js';
import { agenda } from './benches/agenda.bench.js';
import { backlog } from './benches/backlog.bench.js';
import { bullmq } from './benches/bullmq.bench.js';
import { enqueue } from './benches/enqueue.bench.js';
import { fastLane, fastLaneNetwork } from './benches/fast_lane.bench.js';
import { fastLaneOnce } from './benches/fast_lane_once.bench.js';
import { idle } from './benches/idle.bench.js';
import { latency } from './benches/latency.bench.js';
import { longLane } from './benches/long_lane.bench.js';
import { memory } from './benches/memory.bench.js';

const ALL: readonly Bench[] = [
  fastLane,
  fastLaneNetwork,
  fastLaneOnce,
  enqueue,
  agenda,
  bullmq,
  longLane,
  backlog,
  idle,
  latency,
  memory,
];

export const BENCHES: ReadonlyMap<string, Bench> = new Map(ALL.map((bench) => [bench.name, bench]));
