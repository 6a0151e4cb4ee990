// The three sides of the fast-lane benches: the product, the hand-written ceiling, and the row-by-row way it replaces.
import type { Connection } from 'mongoose';
import { FastLaneCeiling, type Way } from './ceilings/fast_lane.ceiling.js';
import { CpuTime } from './cpu_time.js';
import { CommandCount } from './command_count.js';
import { STOP_MS, type EnginePod } from './engine.js';
import type { BenchTopic } from './kafka_topic.js';
import type { Side } from './measure.js';
import { inChunks, seconds, workItem } from './work.js';

const CHUNK = 500;

export interface ProductSide {
  name: string;
  pod: EnginePod;
  target: string;
  partitions: number;
  rows: number;
  /** `cold`: the lane is told nothing, and finds the backlog by its own checks. Default: hinted, as commits do. */
  start?: 'cold' | 'hinted';
}

/** Through the whole product: leases, order, marks, outcomes, the target's handler. */
export function productSide({ name, pod, target, partitions, rows, start = 'hinted' }: ProductSide): Side {
  const drain = async (count: number, how: 'cold' | 'hinted'): Promise<void> => {
    const done = pod.ended(count);
    const lane = await pod.startFastLane(how === 'cold' ? 'cold' : { target, partitions });
    try {
      await done;
    } finally {
      await lane.stop(STOP_MS);
    }
  };
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await pod.empty();
      await fill(pod, target, 10 * partitions);
      await drain(10 * partitions, 'hinted');
      await fill(pod, target, rows);
      const before = { commands: pod.commands.total, sends: pod.kafkaSends };
      const cpu = new CpuTime();
      const began = performance.now();
      await drain(rows, start);
      const value = rows / seconds(began);
      return {
        value,
        counts: {
          'client µs/row': cpu.per(rows),
          'commands/row': (pod.commands.total - before.commands) / rows,
          'sends/row': (pod.kafkaSends - before.sends) / rows,
        },
      };
    },
  };
}

export async function fill({ sideEffect }: EnginePod, target: string, rows: number): Promise<void> {
  await inChunks(rows, CHUNK, async (from, to) => {
    await sideEffect.enqueueMany(Array.from({ length: to - from }, (_, i) => ({ target, ...workItem(from + i) })));
  });
}

export interface HandWritten {
  name: string;
  way: Way;
  connection: Connection;
  topic: BenchTopic;
  partitions: number;
  rows: number;
}

export function handWrittenSide({ name, way, connection, topic, partitions, rows }: HandWritten): Side {
  const ceiling = new FastLaneCeiling(connection, topic, partitions);
  const commands = new CommandCount(connection.getClient());
  return {
    name,
    unit: 'rows/s',
    round: async () => {
      await ceiling.fill(rows);
      commands.reset();
      const before = topic.sends;
      const cpu = new CpuTime();
      const began = performance.now();
      const sent = await ceiling.drain(way);
      const value = sent / seconds(began);
      if (sent !== rows) throw new Error(`${name}: sent ${sent} of ${rows} rows`);
      const client = cpu.per(rows);
      return {
        value,
        counts: {
          'client µs/row': client,
          'commands/row': commands.total / rows,
          'sends/row': (topic.sends - before) / rows,
        },
      };
    },
  };
}
