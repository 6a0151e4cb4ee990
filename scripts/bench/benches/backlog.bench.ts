// `backlog`: what one poll costs while rows pile up: due, paused, DEAD, held behind heads. One collection holds all of
// it at once, so each case is measured in the company of the others; a second one holds a thousand due rows and nothing
// else. Examined rows come from `explain`, times and commands from the polls themselves.
import { JOBS_DEFAULTS } from '../../../src/jobs/jobs.options.js';
import { JobLane } from '../../../src/jobs/jobs.types.js';
import { findCellsWithWork, probeDueKeys, readOrdered } from '../../../src/jobs/store/fast_lane.store.js';
import { findTargetsWithWork, readDue } from '../../../src/jobs/store/long_lane.store.js';
import { ensureIndexes } from '../../../src/jobs/store/boot.store.js';
import { openCollections, type JobsCollections } from '../../../src/jobs/store/collections.js';
import type { JobDoc } from '../../../src/jobs/store/jobs.schema.js';
import type { Bench, BenchContext } from '../bench.types.js';
import { CommandCount } from '../command_count.js';
import { connect, databaseName, dropAndClose } from '../database.js';
import { boundOf, casesOf, interleave, ratioOf, type Side } from '../measure.js';
import { plansOf } from '../query_plans.js';
import { load, storedRow } from '../stored_rows.js';

const BATCH = 100;
const COLD_LIMIT = 256;
const PARTITIONS = 8;
const POLLS = 20;
const HOUR_MS = 3_600_000;
const MOST_EXAMINED = 2;
const MOST_TIME = 1.5;

interface Kind {
  /** Also the name of the target. */
  name: string;
  lane: JobLane;
  rows: number;
  row(i: number): Partial<JobDoc>;
  /** Whose poll it is that may suffer; nothing for rows that only lie about. */
  polled: boolean;
}

export const backlog: Bench = {
  name: 'backlog',
  about: 'one poll with 1 k, 100 k and 1 M rows due, 1 M paused, 1 M DEAD, 100 k held behind heads',
  async run(context) {
    const small = await open(context, 'backlog_small');
    const big = await open(context, 'backlog_big');
    try {
      const thousand = kinds(context, ['fast-1k', 'long-1k']);
      const all = kinds(context);
      for (const kind of thousand) await fill(context, small, kind);
      for (const kind of all) await fill(context, big, kind);
      const polled = all.filter((kind) => kind.polled);
      const sides = [
        ...thousand.map((kind) => pollSide(small, kind, `${kind.name} alone`)),
        ...polled.map((kind) => pollSide(big, kind, kind.name)),
      ];
      const measured = await interleave(sides, context.rounds, context.say);
      const values = (name: string): number[] => measured.find((side) => side.name === name)!.values;
      const pages = (name: string): number[] => measured.find((side) => side.name === name)!.counts['pages/poll']!;
      const million = (lane: string): string => polled.findLast(({ name }) => name.startsWith(`${lane}-1`))!.name;
      return {
        cases: measured.flatMap(casesOf),
        ratios: [
          ...measured.map((side) =>
            boundOf(`examined / returned, ${side.name}`, side.counts['examined/returned']!, MOST_EXAMINED),
          ),
          // Both fill their page. Grows where a scan collects what it does not return, which `explain` does not count.
          ratioOf('pages, fast-1M / fast-100k', pages('fast-1M'), pages('fast-100k')),
          ...['fast', 'long'].map((lane) =>
            ratioOf(`time, ${million(lane)} / ${lane}-1k beside it`, values(million(lane)), values(`${lane}-1k`)),
          ),
          ...['fast', 'long'].map((lane) => ({
            ...ratioOf(`time, ${million(lane)} / ${lane}-1k alone`, values(million(lane)), values(`${lane}-1k alone`)),
            ...timeVerdict(values(million(lane)), values(`${lane}-1k alone`)),
          })),
        ],
        notes: [
          `a poll: cold check, probe and one page of ${BATCH} rows (long lane: cold check and ${BATCH} due rows)`,
          `rows: ${all.map(({ name, rows }) => `${name} ${rows}`).join(', ')}`,
          'where the server is DocumentDB, keys that a scan stepped over inside an index are not counted; pages are',
        ],
      };
    } finally {
      for (const { connection } of [small, big]) await dropAndClose(connection);
    }
  },
};

function timeVerdict(many: readonly number[], few: readonly number[]) {
  const { must, reached } = boundOf(
    '',
    many.map((value, round) => value / few[round]!),
    MOST_TIME,
  );
  return { must, reached };
}

function kinds({ size, quick }: BenchContext, only?: readonly string[]): Kind[] {
  const past = new Date(Date.now() - HOUR_MS);
  const later = new Date(Date.now() + HOUR_MS);
  const due = { run_at: past, next_run_at: past };
  const spread = (i: number) => ({ partition: i % PARTITIONS, order_key: `k${i % 50_000}`, version: i });
  const fastDue = (i: number) => ({ ...due, ...spread(i) });
  const longDue = (i: number) => ({ ...due, lane: JobLane.long, code: `c${i % 50}` });
  // Every 100th row is a head that waits for its retry; what stands behind it was deferred to the head's time.
  const held = (i: number) => ({
    run_at: past,
    next_run_at: later,
    ...spread(i),
    order_key: `h${Math.floor(i / 100)}`,
  });
  // Not scaled: a full page of a cell has to come back from it.
  const few = quick ? 400 : 1_000;
  const middle = size(100_000, 1_000);
  const many = size(1_000_000, 4_000);
  const all: Kind[] = [
    { name: 'fast-1k', lane: JobLane.fast, rows: few, row: fastDue, polled: true },
    { name: 'fast-100k', lane: JobLane.fast, rows: middle, row: fastDue, polled: true },
    { name: 'fast-1M', lane: JobLane.fast, rows: many, row: fastDue, polled: true },
    { name: 'long-1k', lane: JobLane.long, rows: few, row: longDue, polled: true },
    { name: 'long-1M', lane: JobLane.long, rows: many, row: longDue, polled: true },
    { name: 'fast-paused', lane: JobLane.fast, rows: many, row: fastDue, polled: false },
    { name: 'fast-held', lane: JobLane.fast, rows: middle, row: held, polled: false },
    { name: 'fast-held', lane: JobLane.fast, rows: few, row: fastDue, polled: true },
    {
      name: 'fast-dead',
      lane: JobLane.fast,
      rows: many,
      row: (i) => ({ ...spread(i), status: 'DEAD' }),
      polled: false,
    },
    { name: 'fast-dead', lane: JobLane.fast, rows: few, row: fastDue, polled: true },
  ];
  return only ? all.filter(({ name }) => only.includes(name)) : all;
}

type Opened = Awaited<ReturnType<typeof open>>;

async function open({ mongoUri }: BenchContext, what: string) {
  const connection = await connect(mongoUri, databaseName(what));
  const collections = await openCollections(connection, JOBS_DEFAULTS);
  await ensureIndexes(collections);
  return { connection, collections, commands: new CommandCount(connection.getClient()) };
}

async function fill({ say }: BenchContext, { collections }: Opened, { name, rows, row }: Kind): Promise<void> {
  say(`loading ${rows} rows of ${name}`);
  await load(collections, rows, (i) => storedRow(name, i, row(i)));
}

/** The value of a round is the time of the quickest of a few polls: what the load of the machine disturbs least. */
function pollSide({ connection, collections, commands }: Opened, kind: Kind, name: string): Side {
  const poll = kind.lane === JobLane.fast ? pollFast : pollLong;
  return {
    name,
    unit: 'ms/poll',
    round: async () => {
      const times: number[] = [];
      commands.reset();
      for (let i = 0; i < POLLS; i++) {
        const began = performance.now();
        await poll(collections, kind.name);
        times.push(performance.now() - began);
      }
      const sent = commands.total / POLLS;
      const plans = await plansOf(connection, () => poll(collections, kind.name));
      const worst = plans.map(({ keys, documents, returned }) => Math.max(keys, documents) / Math.max(1, returned));
      return {
        value: Math.min(...times),
        counts: {
          'commands/poll': sent,
          'examined/returned': Math.max(...worst),
          'keys/poll': plans.reduce((sum, { keys }) => sum + keys, 0),
          'documents/poll': plans.reduce((sum, { documents }) => sum + documents, 0),
          'pages/poll': plans.reduce((sum, { pages }) => sum + pages, 0),
        },
      };
    },
  };
}

async function pollFast(collections: JobsCollections, target: string): Promise<void> {
  const now = new Date();
  const partitions = Array.from({ length: PARTITIONS }, (_, partition) => partition);
  await findCellsWithWork(collections, { targets: [target], partitions }, now, COLD_LIMIT);
  const cell = { target, partition: 0 };
  const keys = await probeDueKeys(collections, cell, now, BATCH);
  const range = keys.length === BATCH ? { after: '' } : { keys: [...new Set(keys)] };
  await readOrdered(collections, cell, range, BATCH);
}

async function pollLong(collections: JobsCollections, target: string): Promise<void> {
  const now = new Date();
  await findTargetsWithWork(collections, [target], now, COLD_LIMIT);
  await readDue(collections, { target, busy: [], now, limit: BATCH });
}
