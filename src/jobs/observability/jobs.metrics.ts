/**
 * The engine as Prometheus metrics: counted from its events, gauges looked up when scraped. Listens and reads, nothing
 * else: no run waits for a metric, and none of them costs a command until somebody scrapes.
 */
import { Inject, Injectable } from '@nestjs/common';
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JobsEvents, type JobsEvent } from '../jobs.events.js';
import { PartitionLeaseService } from '../lanes/partition_lease.service.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { BacklogReader } from './backlog_reader.js';
import { EngineHealth, HEALTH_PROBLEMS } from './engine_health.js';
import { EngineLoops } from './engine_loops.js';
import { DURATION_BUCKETS, METRICS, type MetricName, type MetricSpec } from './metric_table.js';
import { TargetLabels } from './target_labels.js';

export const METRICS_REGISTRY = Symbol('sidelane.metrics.registry');

/** Classes a run can end with; whatever else an event says is counted as `other`. */
const OUTCOMES = new Set([
  'success',
  'completed',
  'answered',
  'rejected',
  'unreachable',
  'unknown',
  'timed_out',
  'cancelled',
  'dropped',
]);

type Labels = Record<string, string>;

const any = (): boolean => true;
/** Counters with a series per registered target, and their other labels. */
const BEGIN_AT_0: Partial<Record<MetricName, { of(target: string): boolean; at: readonly Labels[] }>> = {
  dead: { of: any, at: [{}] },
  claimsLost: { of: any, at: [{ at: 'renewal' }, { at: 'outcome' }] },
  outcomesLost: { of: any, at: [{}] },
  outcomesKept: { of: any, at: [{}] },
  slotsSkipped: { of: (target) => target.startsWith('schedule:'), at: [{ at: 'tick' }, { at: 'run' }] },
};

@Injectable()
export class JobsMetrics {
  private readonly counters = new Map<MetricName, Counter>();
  private readonly gauges = new Map<MetricName, Gauge>();
  private readonly duration: Histogram;
  private readonly labels: TargetLabels;

  constructor(
    @Inject(METRICS_REGISTRY) readonly registry: Registry,
    @Inject(JobsEvents) events: JobsEvents,
    @Inject(JobTargetsRegistry) targets: JobTargetsRegistry,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
    @Inject(EngineLoops) private readonly loops: EngineLoops,
    @Inject(EngineHealth) private readonly health: EngineHealth,
    @Inject(BacklogReader) private readonly backlog: BacklogReader,
  ) {
    this.labels = new TargetLabels(targets);
    const { duration, ...others } = METRICS;
    this.duration = new Histogram({ ...options(duration), buckets: DURATION_BUCKETS, registers: [registry] });
    for (const [key, spec] of Object.entries(others) as [MetricName, MetricSpec][]) {
      const made = { ...options(spec), registers: [registry] };
      if (spec.kind === 'counter') this.counters.set(key, new Counter({ ...made, ...this.beginning(key, targets) }));
      else this.gauges.set(key, new Gauge({ ...made, ...this.collecting(key) }));
    }
    events.on((event) => this.count(event));
  }

  /** Prometheus text of the whole registry. */
  text(): Promise<string> {
    return this.registry.metrics();
  }

  private count(event: JobsEvent): void {
    switch (event.type) {
      case 'enqueued':
        for (const { target } of event.rows) this.add('enqueued', 1, this.labels.of(target));
        return;
      case 'run_started':
        return this.add('started', event.rows, this.labels.of(event.target));
      case 'run_ended': {
        const labels = this.labels.of(event.row.target);
        this.duration.observe(labels, event.ms / 1_000);
        return this.add('ended', 1, { ...labels, outcome: OUTCOMES.has(event.result) ? event.result : 'other' });
      }
      case 'dead':
        return this.add('dead', 1, this.target(event.row.target));
      case 'cancelled':
        return this.add('cancelled', 1, this.target(event.row.target));
      case 'skipped':
        for (const { target } of event.rows) this.add('skipped', 1, this.target(target));
        return;
      case 'on_dead_failed':
        return this.add('onDeadFailed', 1, this.target(event.row.target));
      case 'rate_limited':
        return this.add('rateLimited', event.rows, this.target(event.target));
      case 'target_paused':
        this.gauges.get('paused')!.set(this.target(event.target), 1);
        return this.add('pauses', 1, { ...this.target(event.target), by: event.by });
      case 'target_resumed':
        return this.gauges.get('paused')!.set(this.target(event.target), 0);
      case 'target_probed':
        return this.add('probes', 1, this.target(event.target));
      case 'taken_over':
        this.add('takeovers', event.dead, { ...this.target(event.target), verdict: 'dead' });
        return this.add('takeovers', event.counted, { ...this.target(event.target), verdict: 'again' });
      case 'reclaimed':
        for (const verdict of ['again', 'dead', 'cancelled'] as const)
          this.add('reclaimed', event[verdict], { verdict });
        return;
      case 'claimed':
        this.add('claims', event.rows);
        return this.add('claimConflicts', event.conflicts);
      case 'claim_lost':
        return this.add('claimsLost', event.count, { ...this.target(event.target), at: event.where });
      case 'outcome_lost':
        return this.add('outcomesLost', event.count, this.target(event.target));
      case 'outcome_kept':
        return this.add('outcomesKept', 1, this.target(event.target));
      case 'round_failed':
        return this.add('roundsFailed', 1, this.target(event.target));
      case 'loop_failed':
        return this.add('loopFailures', 1, { loop: this.loopLabel(event.loop) });
      case 'partitions_taken':
        return this.add('partitionsTaken', event.partitions.length);
      case 'partitions_released':
        return this.add('partitionsReleased', event.partitions.length);
      case 'partitions_lost':
        return this.add('partitionsLost', event.partitions.length);
      case 'slot_enqueued':
        return this.add('slotsEnqueued', 1, this.target(`schedule:${event.code}`));
      case 'slot_skipped':
        return this.add('slotsSkipped', 1, { ...this.target(`schedule:${event.code}`), at: event.at });
      case 'schedule_broken':
        return this.add('schedulesBroken', 1, this.target(`schedule:${event.code}`));
      case 'lossy_dropped':
        return this.add('lossyDropped', event.count, { ...this.target(event.target), reason: event.reason });
      case 'redis_state':
        return this.gauges.get('redisUp')!.set({ use: event.use }, event.state === 'up' ? 1 : 0);
      default:
    }
  }

  /**
   * Counters that alerts are made of stand at 0 before anything has happened: the first DEAD row of a target would else
   * make a series that begins at 1, and has never increased.
   */
  private beginning(metric: MetricName, targets: JobTargetsRegistry): { collect?: (this: Counter) => void } {
    const own = BEGIN_AT_0[metric];
    if (!own) return {};
    const target = (name: string): Labels => this.target(name);
    return {
      collect() {
        for (const { name } of targets.all())
          if (own.of(name)) for (const at of own.at) this.inc({ ...target(name), ...at }, 0);
      },
    };
  }

  private add(metric: MetricName, count: number, labels: Labels = {}): void {
    if (count > 0) this.counters.get(metric)!.inc(labels, count);
  }

  private target(name: string): { target: string } {
    return { target: this.labels.of(name).target };
  }

  private loopLabel(name: string): string {
    return this.loops.all().some((loop) => loop.name === name) ? name : 'other';
  }

  /** What a gauge does when it is scraped. Never throws: one that did would fail the whole scrape. */
  private collecting(metric: MetricName): { collect?: (this: Gauge) => void | Promise<void> } {
    const { clock, leases, loops, health, backlog } = this;
    const target = (name: string): Labels => this.target(name);
    switch (metric) {
      case 'partitionsOwned':
        return collectWith((gauge) => gauge.set(leases.readable().length));
      case 'loopAge':
        return collectWith((gauge) => {
          for (const { name, lastRoundAt } of loops.all())
            if (lastRoundAt !== undefined) gauge.set({ loop: name }, (clock.monotonic() - lastRoundAt) / 1_000);
        });
      case 'loopLate':
        return collectWith((gauge) => {
          for (const loop of loops.all()) gauge.set({ loop: loop.name }, loop.lateMs() / 1_000);
        });
      case 'eventLoopBlocked':
        return collectWith((gauge) => gauge.set(health.check().details.event_loop_blocked_ms / 1_000));
      case 'health':
        return collectWith((gauge) => {
          const { problems } = health.check().details;
          for (const problem of HEALTH_PROBLEMS) gauge.set({ problem }, problems[problem]?.count ?? 0);
        });
      case 'backlog':
        return collectWith(async (gauge) => {
          for (const [state, count] of (await backlog.current())?.states ?? []) gauge.set({ state }, count);
        });
      case 'oldestDue':
        return collectWith(async (gauge) => {
          const oldest = new Map<string, number>();
          for (const [name, ms] of (await backlog.current())?.oldestMs ?? []) {
            const label = target(name)['target']!;
            oldest.set(label, Math.max(oldest.get(label) ?? 0, ms)); // `other` stands for many
          }
          for (const [label, ms] of oldest) gauge.set({ target: label }, ms / 1_000);
        });
      case 'backlogAge':
        return collectWith(async (gauge) => {
          const read = await backlog.current();
          if (read) gauge.set((clock.monotonic() - read.readAt) / 1_000);
        });
      default:
        return {};
    }
  }
}

function collectWith(collect: (gauge: Gauge) => void | Promise<void>): { collect(this: Gauge): void | Promise<void> } {
  return {
    collect() {
      return collect(this);
    },
  };
}

function options({ name, help, labels }: MetricSpec): { name: string; help: string; labelNames: string[] } {
  return { name, help, labelNames: [...labels] };
}
