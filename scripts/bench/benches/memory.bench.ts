// `memory`: resident size of a pod of its own process while it drains many small rows, and few large ones: flat, and the
// same for a tenth of the rows.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Bench, BenchContext } from '../bench.types.js';
import { databaseName, dropDatabase } from '../database.js';
import { EnginePod } from '../engine.js';
import { boundOf, caseOf, type Case, type Ratio } from '../measure.js';
import { pool } from '../work.js';

const TARGET = 'bench:memory';
const WORKER = fileURLToPath(new URL('../memory.worker.ts', import.meta.url));
const MB = 1024 * 1024;
/** Growth of the largest size between the second and the last quarter of the drain. */
const MOST_GROWTH = 1.25;
/** Largest size with all rows against a tenth of them. */
const MOST_BY_ROWS = 1.5;
const FILLERS = 2;
/** Bytes of one enqueue. */
const CHUNK_BYTES = 1024 * 1024;

interface Sample {
  done: number;
  rss: number;
}

export const memory: Bench = {
  name: 'memory',
  about: 'resident size while draining 1 M rows of 2 kB and 5,000 rows of 200 kB',
  async run(context) {
    const small = await compare(context, '2 kB', 2_048, context.size(1_000_000, 4_000));
    const large = await compare(context, '200 kB', 200 * 1_024, context.size(5_000, 40));
    return {
      cases: [...small.cases, ...large.cases],
      ratios: [...small.ratios, ...large.ratios],
      notes: ['one drain each, not rounds: the spread is that of the samples; the pod is a process of its own'],
    };
  },
};

async function compare(
  context: BenchContext,
  size: string,
  bytes: number,
  rows: number,
): Promise<{ cases: Case[]; ratios: Ratio[] }> {
  const few = await watch(context, bytes, Math.ceil(rows / 10));
  const many = await watch(context, bytes, rows);
  const largest = (samples: readonly Sample[]): number => Math.max(...samples.map(({ rss }) => rss / MB));
  const quarter = (nth: number): Sample[] =>
    many.filter(({ done }) => done > (rows * (nth - 1)) / 4 && done <= (rows * nth) / 4);
  const inMb = (samples: readonly Sample[]): number[] => samples.map(({ rss }) => rss / MB);
  return {
    cases: [
      caseOf(`${Math.ceil(rows / 10)} rows of ${size}`, 'MB', inMb(few)),
      caseOf(`${rows} rows of ${size}`, 'MB', inMb(many)),
    ],
    ratios: [
      boundOf(`last quarter / second quarter, ${size}`, [largest(quarter(4)) / largest(quarter(2))], MOST_GROWTH),
      boundOf(`all rows / a tenth of them, ${size}`, [largest(many) / largest(few)], MOST_BY_ROWS),
    ],
  };
}

/** Samples of one drain, from its first row to its last. */
async function watch(context: BenchContext, bytes: number, rows: number): Promise<Sample[]> {
  const database = databaseName('memory');
  const { mongoUri } = context;
  await fill(context, database, bytes, rows);
  const worker = spawn(process.execPath, ['--import', 'tsx', WORKER, mongoUri, database, TARGET], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const samples: Sample[] = [];
  try {
    for await (const line of createInterface(worker.stdout)) {
      const sample = JSON.parse(line) as Sample;
      if (sample.done > 0) samples.push(sample);
      if (sample.done >= rows) break;
    }
    if ((samples.at(-1)?.done ?? 0) < rows) throw new Error('the pod ended before its rows did');
    return samples;
  } finally {
    const ended = new Promise((resolve) => worker.once('close', resolve));
    if (worker.exitCode === null) worker.kill('SIGTERM');
    else worker.stdout.destroy();
    worker.stdout.resume();
    await ended;
    await dropDatabase(mongoUri, database);
  }
}

async function fill({ mongoUri, say }: BenchContext, database: string, bytes: number, rows: number): Promise<void> {
  say(`loading ${rows} rows of ${bytes} bytes`);
  const pod = await EnginePod.boot({
    uri: mongoUri,
    database,
    jobs: { partitions: 8, hints: 'off' },
    targets: () => [{ name: TARGET, lane: 'fast', handler: async () => undefined }],
  });
  try {
    const chunk = Math.max(1, Math.floor(CHUNK_BYTES / bytes));
    await pool(Math.ceil(rows / chunk), FILLERS, (n) => {
      const count = Math.min(chunk, rows - n * chunk);
      const items = Array.from({ length: count }, (_, i) => {
        const at = n * chunk + i;
        return { target: TARGET, key: `k${at % 1_000}`, version: at, payload: { at, text: textOf(at, bytes) } };
      });
      return pod.sideEffect.enqueueMany(items);
    });
  } finally {
    await pod.close();
  }
}

/** Text that does not shrink to nothing where a server compresses. */
function textOf(i: number, bytes: number): string {
  const word = (i * 2_654_435_761).toString(36);
  return word.repeat(Math.ceil(bytes / word.length)).slice(0, bytes);
}
