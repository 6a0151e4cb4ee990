// The process whose memory `memory` watches: one pod that drains what it finds, and tells its resident size on standard
// output, one JSON line per sample. Filled by its parent, so that nothing but the drain is in it.
import { EnginePod } from './engine.js';

const [uri, database, target] = process.argv.slice(2) as [string, string, string];
const SAMPLE_MS = 100;

let done = 0;
const tell = (): void => {
  const { rss, heapUsed } = process.memoryUsage();
  process.stdout.write(`${JSON.stringify({ done, rss, heapUsed })}\n`);
};

const pod = await EnginePod.boot({
  uri,
  database,
  jobs: { workers: 'on', partitions: 8, fast_lane: { idle_poll_ms: [50, 200, 1_000] } },
  targets: () => [
    {
      name: target,
      lane: 'fast',
      delivery_mode: 'at_least_once',
      batch_handler: (jobs) => {
        done += jobs.length;
        return Promise.resolve();
      },
    },
  ],
});
tell();
const timer = setInterval(tell, SAMPLE_MS);
process.once('SIGTERM', () => {
  clearInterval(timer);
  void pod.close().finally(() => process.exit(0));
});
