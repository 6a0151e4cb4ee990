/**
 * Is there work that nobody will do? Rows of a partition without a live owner, and names on rows that no live pod knows.
 * One command while nothing waits, a few bounded ones otherwise; reads only. What a rebalancing, a boot or a deployment
 * shows for a moment is no problem yet: a finding counts once it was there twice, `CONFIRM_MS` apart.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import * as store from '../store/health.store.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';

/** Target names that rows outside of `jobs` count on: enabled schedules. */
export type NameSource = () => Promise<readonly string[]>;

export interface Ownership {
  /** Partitions with due rows and without a live owner. */
  readonly ownerless: readonly number[];
  /** Names on rows that no live pod knows. */
  readonly unknown: readonly string[];
  /** Something was seen for the first time: look again soon. */
  readonly unsure: boolean;
}

/** Names looked at: more distinct targets than that waiting at once is not an engine that is told apart by names. */
const MOST_NAMES = 200;
const DUE_ROWS_LIMIT = 256;
/** Long enough for a heartbeat, so that a pod that just booted has said what it knows and taken what is free. */
const CONFIRM_MS = 15_000;

@Injectable()
export class OwnershipCheck {
  private readonly sources: NameSource[] = [];
  private readonly ownerless = new Suspects<number>();
  private readonly unknown = new Suspects<string>();

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
  ) {}

  addSource(source: NameSource): void {
    this.sources.push(source);
  }

  /** Throws what the database throws. */
  async look(): Promise<Ownership> {
    const now = this.clock.now();
    const abandonedBefore = new Date(now.getTime() - 2 * this.config.long_lane.sweep_ms);
    const names = await store.namesOnRows(this.collections, { most: MOST_NAMES, abandonedBefore });
    const elsewhere = (await Promise.all(this.sources.map((source) => source()))).flat();
    const unknown = await this.strangers([...names.fast, ...names.long, ...names.abandoned, ...elsewhere], now);
    const ownerless = await this.withoutOwner(names.fast, now);
    const at = this.clock.monotonic();
    const confirmed = { ownerless: this.ownerless.confirm(ownerless, at), unknown: this.unknown.confirm(unknown, at) };
    const unsure = confirmed.ownerless.length < ownerless.length || confirmed.unknown.length < unknown.length;
    return { ...confirmed, unsure };
  }

  private async strangers(names: readonly string[], now: Date): Promise<string[]> {
    // A pod whose loops are off runs nothing: that it knows a name helps no row.
    const mine = (name: string): boolean => this.config.workers !== 'off' && this.targets.get(name) !== undefined;
    const strange = [...new Set(names)].filter((name) => !mine(name));
    if (strange.length === 0) return [];
    const known = await store.knownTargets(this.collections, new Date(now.getTime() - this.config.lease.worker_ttl_ms));
    return known ? strange.filter((name) => !known.has(name)).sort() : [];
  }

  private async withoutOwner(targets: readonly string[], now: Date): Promise<number[]> {
    if (targets.length === 0) return [];
    const partitions = await store.unownedPartitions(this.collections, now);
    if (partitions.length === 0) return [];
    return store.partitionsWithDueRows(this.collections, { targets, partitions, now, limit: DUE_ROWS_LIMIT });
  }
}

/** When each finding was seen first. One that is missing from a look is forgotten. */
class Suspects<T> {
  private seen = new Map<T, number>();

  confirm(found: readonly T[], at: number): T[] {
    this.seen = new Map(found.map((each) => [each, this.seen.get(each) ?? at]));
    return found.filter((each) => at - this.seen.get(each)! >= CONFIRM_MS);
  }
}
