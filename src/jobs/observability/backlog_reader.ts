/**
 * What waits in the database, for a scrape. Read only when asked, at most once per `FRESH_MS` on this pod however many
 * scrapers ask, and never waited for longer than `PATIENCE_MS`: while the database is away a scrape still gets every other
 * metric, and the last numbers with their age. Every read is bounded (store/health.store.ts).
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane, JobStatus } from '../jobs.types.js';
import { PartitionLeaseService } from '../lanes/partition_lease.service.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import * as store from '../store/health.store.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';

export interface Backlog {
  readonly states: ReadonlyMap<JobStatus, number>;
  /** Age of the oldest due row by target, in ms; 0 where nothing is due. */
  readonly oldestMs: ReadonlyMap<string, number>;
  /** Monotonic time of the read. */
  readonly readAt: number;
}

const FRESH_MS = 15_000;
const PATIENCE_MS = 2_000;
/** Targets whose ages one read asks for; the others keep theirs until their turn comes. */
const TARGETS_PER_READ = 20;
const MOST_NAMES = 200;

@Injectable()
export class BacklogReader {
  private last: Backlog | undefined;
  private reading: Promise<void> | undefined;
  private triedAt = -Infinity;
  private turn = 0;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
  ) {}

  /** The last numbers; none before the first answer of the database. Never rejects. */
  async current(): Promise<Backlog | undefined> {
    if (this.clock.monotonic() - this.triedAt >= FRESH_MS) {
      this.triedAt = this.clock.monotonic();
      this.reading ??= this.read()
        // The age of the numbers tells it; the loops and the health check say why.
        .catch(() => undefined)
        .finally(() => (this.reading = undefined));
    }
    if (this.reading) await this.patiently(this.reading);
    return this.last;
  }

  private async read(): Promise<void> {
    const now = this.clock.now();
    const names = await store.namesOnRows(this.collections, { most: MOST_NAMES });
    const states = await store.countStates(this.collections, Object.values(JobStatus), this.config.admin.count_limit);
    const oldestMs = await this.ages(new Set([...names.fast, ...names.long]), now);
    this.last = { states, oldestMs, readAt: this.clock.monotonic() };
  }

  private async ages(waiting: ReadonlySet<string>, now: Date): Promise<Map<string, number>> {
    const known = this.targets.all();
    const ages = new Map(known.map(({ name }) => [name, waiting.has(name) ? (this.last?.oldestMs.get(name) ?? 0) : 0]));
    const busy = known.filter(({ name }) => waiting.has(name));
    const start = busy.length > TARGETS_PER_READ ? this.turn % busy.length : 0;
    this.turn = start + TARGETS_PER_READ;
    for (const { name, lane } of [...busy.slice(start), ...busy.slice(0, start)].slice(0, TARGETS_PER_READ)) {
      const oldest = await this.oldest(name, lane, now);
      ages.set(name, oldest ? Math.max(0, now.getTime() - oldest.getTime()) : 0);
    }
    return ages;
  }

  private oldest(target: string, lane: JobLane, now: Date): Promise<Date | undefined> {
    if (lane === JobLane.long) return store.oldestDueLong(this.collections, target, now);
    const partitions = this.leases.readable().map(({ partition }) => partition);
    return store.oldestDueFast(this.collections, { target, partitions, now });
  }

  private async patiently(work: Promise<void>): Promise<void> {
    let cancel = (): void => undefined;
    const late = new Promise<void>((resolve) => {
      const timer = this.clock.after(PATIENCE_MS, resolve);
      cancel = () => timer.cancel();
    });
    await Promise.race([work, late]);
    cancel();
  }
}
