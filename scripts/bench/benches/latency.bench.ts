// `latency`: from the commit of an enqueue to the start of its handler, idle and at half load, hints on and off, on the
// pod that committed and on another; Agenda and BullMQ beside it. All in one process, so that one clock measures.
import { randomUUID } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import type { JobsModuleOptions } from '../../../src/jobs/jobs.options.js';
import type { Bench, BenchContext } from '../bench.types.js';
import { connect, databaseName, dropAndClose, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { caseOf, interleave, percentile, ratioOf, type Measured, type Side } from '../measure.js';
import { agendaPeer } from '../peers/agenda.peer.js';
import { bullmqPeer } from '../peers/bullmq.peer.js';
import type { Peer } from '../peers/peer.types.js';
import { pool, seconds, workItem } from '../work.js';

const TARGET = 'bench:latency';
const LOAD = 'bench:load';
const GAP_MS = 70;
/** A hint that was lost shows as a poll; nothing takes longer than this. */
const LATEST_MS = 15_000;
const LOAD_ROWS = 50;

export const latency: Bench = {
  name: 'latency',
  about: 'commit to handler start: idle, at half load, with and without hints, same pod and other pod, and peers',
  async run(context) {
    const engines = [
      await bootEngine(context, { hints: 'on', other: false }),
      await bootEngine(context, { hints: 'off', other: false }),
      await bootEngine(context, { hints: 'on', other: true }),
      await bootEngine(context, { hints: 'off', other: true }),
    ];
    const connection = await connect(context.mongoUri, databaseName('latency_agenda'));
    const peers = [
      agendaPeer(connection, { concurrency: 20, poll_ms: 20 }),
      bullmqPeer(context.redisUrl, { concurrency: 20 }),
    ];
    try {
      const jobs = context.size(40, 5);
      const half = (await capacityOf(engines[0]!, context)) / 2;
      const sides = [
        ...engines.map((engine) => engineSide(engine, jobs, 0)),
        ...engines.slice(0, 1).map((engine) => engineSide(engine, jobs, half)),
        ...engines.slice(2, 3).map((engine) => engineSide(engine, jobs, half)),
        ...peers.map((peer) => peerSide(peer, jobs)),
      ];
      const measured = await interleave(sides, context.rounds, context.say);
      const find = (name: string): number[] => measured.find((side) => side.name === name)!.values;
      return {
        cases: measured.flatMap(latencyCases),
        ratios: [
          ratioOf('Agenda / hinted on the same pod, p50', find('Agenda, poll 20 ms'), find(engines[0]!.name)),
          ratioOf('BullMQ / hinted on the same pod, p50', find('BullMQ'), find(engines[0]!.name)),
          ratioOf('Agenda / hinted on another pod, p50', find('Agenda, poll 20 ms'), find(engines[2]!.name)),
        ],
        notes: [
          `one job every ${GAP_MS} ms, ${jobs} a round; half load: ${Math.round(half)} rows/s beside it`,
          'each enqueue is a transaction of its own',
        ],
      };
    } finally {
      for (const { close } of engines) await close();
      for (const peer of peers) await peer.close?.();
      await dropAndClose(connection);
    }
  },
};

interface Engine {
  name: string;
  enqueuer: EnginePod;
  /** Called with the number of a job when its handler starts. */
  started: { on: (i: number) => void; load: number };
  close(): Promise<void>;
}

async function bootEngine(
  { mongoUri, redisUrl }: BenchContext,
  { hints, other }: { hints: 'on' | 'off'; other: boolean },
): Promise<Engine> {
  const database = databaseName('latency');
  const started: Engine['started'] = { on: () => undefined, load: 0 };
  const boot = (jobs: JobsModuleOptions): Promise<EnginePod> =>
    EnginePod.boot({
      uri: mongoUri,
      database,
      jobs: { partitions: 8, hints, redis: { url: other && hints === 'on' ? redisUrl : '' }, ...jobs },
      targets: () => [
        {
          name: TARGET,
          lane: 'fast',
          delivery_mode: 'at_least_once',
          handler: async (job) => started.on((job.payload as { i: number }).i),
        },
        {
          name: LOAD,
          lane: 'fast',
          delivery_mode: 'at_least_once',
          batch_handler: async (rows) => void (started.load += rows.length),
        },
      ],
    });
  const worker = await boot({ workers: 'on' });
  const enqueuer = other ? await boot({ workers: 'off' }) : worker;
  return {
    name: `${other ? 'other pod' : 'same pod'}, hints ${hints}`,
    enqueuer,
    started,
    close: async () => {
      if (other) await enqueuer.close();
      await worker.close();
      await dropDatabase(mongoUri, database);
    },
  };
}

/** Rows a second that the load's target can take at most. */
async function capacityOf({ enqueuer, started }: Engine, { size }: BenchContext): Promise<number> {
  const rows = size(5_000, 500);
  const target = started.load + rows;
  const began = performance.now();
  await pool(rows / LOAD_ROWS, 4, () => enqueueLoad(enqueuer));
  while (started.load < target) await wait(5);
  return rows / seconds(began);
}

function enqueueLoad({ sideEffect }: EnginePod): Promise<unknown> {
  const item = () => ({ target: LOAD, ...workItem(0), key: randomUUID(), version: 0 });
  return sideEffect.enqueueMany(Array.from({ length: LOAD_ROWS }, item));
}

/** `load`: rows a second beside what is measured. */
function engineSide({ name, enqueuer, started }: Engine, jobs: number, load: number): Side {
  return latencySide(load > 0 ? `${name}, half load` : name, jobs, async (measure) => {
    started.on = measure.started;
    const ended = new AbortController();
    const loading = load > 0 ? keepLoading(enqueuer, load, ended.signal) : undefined;
    await measure.run((i) => enqueuer.sideEffect.enqueue(TARGET, { ...workItem(i).payload, i }));
    ended.abort();
    await loading;
  });
}

async function keepLoading(pod: EnginePod, load: number, ended: AbortSignal): Promise<void> {
  const gap = (1_000 * LOAD_ROWS) / load;
  for (let next = performance.now(); !ended.aborted; next += gap) {
    await enqueueLoad(pod);
    await wait(Math.max(0, next + gap - performance.now()));
  }
}

function peerSide(peer: Peer, jobs: number): Side {
  return latencySide(peer.name === 'Agenda' ? 'Agenda, poll 20 ms' : peer.name, jobs, async (measure) => {
    await peer.open();
    await peer.start({ onStart: measure.started, onDone: () => undefined });
    await wait(200);
    await measure.run((i) => peer.enqueue(i));
    await peer.stop();
  });
}

interface Measure {
  started(i: number): void;
  run(enqueue: (i: number) => Promise<unknown>): Promise<void>;
}

/** The value of a round is its p50; p99 and the longest stand beside it. */
function latencySide(name: string, jobs: number, body: (measure: Measure) => Promise<void>): Side {
  return {
    name,
    unit: 'ms',
    round: async () => {
      const committed: number[] = [];
      const began: number[] = [];
      const run = async (enqueue: (i: number) => Promise<unknown>): Promise<void> => {
        for (let i = 0; i < jobs; i++) {
          await enqueue(i);
          committed[i] = performance.now();
          await wait(GAP_MS * (0.5 + Math.random()));
        }
        const until = performance.now() + LATEST_MS;
        while (began.filter(() => true).length < jobs && performance.now() < until) await wait(10);
      };
      await body({ started: (i) => void (began[i] ??= performance.now()), run });
      // A handler may start before the caller's await comes back: that is no time at all.
      const times = committed.map((at, i) => Math.max(0, (began[i] ?? at + LATEST_MS) - at));
      return { value: percentile(times, 50), counts: { p99: percentile(times, 99) } };
    },
  };
}

function latencyCases({ name, values, counts }: Measured) {
  return [caseOf(`${name}, p50`, 'ms', values), caseOf(`${name}, p99`, 'ms', counts['p99']!)];
}
