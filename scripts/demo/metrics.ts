// One scrape of each pod's metrics page, in a few sums. A pod's counters end with it, so these are the living pods' own.
import type { Pod } from './pod.js';

/** `name{label="value",…} number`, as Prometheus reads it. */
const SAMPLE = /^(\w+)(?:\{(.*)\})? (\S+)$/;

export interface Scraped {
  enqueued: number;
  /** Runs by the class of their outcome. */
  ended: Record<string, number>;
  dead: number;
}

export async function scrape(pods: readonly Pod[]): Promise<Scraped> {
  const pages = await Promise.all(pods.map(async ({ metricsUrl }) => (await fetch(metricsUrl)).text()));
  const sums: Scraped = { enqueued: 0, ended: {}, dead: 0 };
  for (const line of pages.flatMap((page) => page.split('\n'))) {
    const [, name, labels = '', value] = SAMPLE.exec(line) ?? [];
    const number = Number(value);
    if (name === 'sidelane_jobs_enqueued_total') sums.enqueued += number;
    if (name === 'sidelane_jobs_dead_total') sums.dead += number;
    const outcome = /outcome="(\w+)"/.exec(labels)?.[1];
    if (name !== 'sidelane_runs_ended_total' || !outcome || number === 0) continue;
    sums.ended[outcome] = (sums.ended[outcome] ?? 0) + number;
  }
  return sums;
}
