/**
 * Keeps this pod's share of the partitions (invariant 5).
 *
 * Who is authoritative: the database decides who owns a partition and until when. This pod's monotonic clock decides
 * only when to stop trusting the last answer: `deadline = monotonic time BEFORE the renewal was asked + ttl`. A renewal
 * that took long, or whose answer was lost, therefore never stretches the lease here beyond what it is there.
 * If we sleep past the deadline (stopped process, blocked event loop), nothing starts until a heartbeat has read back
 * that the same term is still ours; if another pod took it meanwhile, the term is lost and its late writes match nothing.
 *
 * Nothing may come between a pod and its renewals: not a judgement (it calls the host's `on_dead`), which goes on beside
 * them, and no command that never comes back, behind which the next heartbeat begins anew.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { ID_SOURCE, type IdSource } from '../../common/ports/ids.js';
import { RANDOM, type Random } from '../../common/ports/random.js';
import { within } from '../../common/utils/within.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import { fairShare } from '../policy/partition.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { PartitionDoc } from '../store/jobs.schema.js';
import * as store from '../store/partition_lease.store.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { LivePods } from './live_pods.js';
import { OwnedPartition } from './owned_partition.js';
import { POD, type Pod } from './pod.js';
import { TakeoverJudge } from './takeover_judge.js';

/** Written with every heartbeat; a pod with more does not say what it knows, rather than half of it. */
const MAX_TOLD_TARGETS = 500;

const BEATS_PER_SYNC = 3;

/** How long a heartbeat waits for judgements, which nearly always end at once. */
const JUDGE_PATIENCE_MS = 1_000;

@Injectable()
export class PartitionLeaseService {
  private readonly held = new Map<number, OwnedPartition>();
  /** Given up by this pod, but the database has not answered yet: never taken up again, tried until it answers. */
  private readonly unreleased = new Set<OwnedPartition>();
  /** Reached for, but the database has not answered: they may be ours under a token we never saw. */
  private unanswered: readonly number[] = [];
  private startedAt: Date | undefined;
  private beatsUntilSync = 0;
  /** Counts heartbeats: an answer that comes to one that was given up is out of date. */
  private beats = 0;
  /** The judgements under way: one at a time, or hooks that hang would take every connection from the renewals. */
  private judging: Promise<void> | undefined;
  /** True once this pod gives everything back: it must not take more. */
  private leaving = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(RANDOM) private readonly random: Random,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(TakeoverJudge) private readonly judge: TakeoverJudge,
    @Inject(LivePods) private readonly livePods: LivePods,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
  ) {}

  /** Partitions whose rows may be read: ours, judged, not on their way out. */
  readable(): OwnedPartition[] {
    return [...this.held.values()].filter((owned) => !owned.lost && owned.judged && !owned.releasing);
  }

  get(partition: number): OwnedPartition | undefined {
    return this.held.get(partition);
  }

  /** The check before every start: will the lease outlive a run of `ms`? */
  mayStart(owned: OwnedPartition, ms: number): boolean {
    if (owned.lost || !owned.judged) return false;
    return owned.deadline - this.config.lease.margin_ms - this.clock.monotonic() >= ms;
  }

  /** A fenced write matched nothing: somebody else owns the partition. */
  lose(owned: OwnedPartition): void {
    if (owned.lost) return;
    owned.lost = true;
    if (this.held.get(owned.partition) === owned) this.held.delete(owned.partition);
    this.events.emit({ type: 'partitions_lost', partitions: [owned.partition] });
  }

  /**
   * One heartbeat: renew, tell that we live, read back what is ours, move towards the fair share. Four commands; one more
   * with the clock, three more when it takes partitions. Throws what the database does, and when it does not answer within
   * a third of the lease.
   */
  async heartbeat(): Promise<void> {
    const beat = ++this.beats;
    const ms = Math.ceil(this.config.lease.ttl_ms / 3);
    try {
      const work = this.followClock().then(() => this.beat(beat));
      if (!(await within(this.clock, ms, work))) throw new Error(`no answer to a heartbeat within ${ms} ms`);
    } catch (error) {
      this.beatsUntilSync = 0; // whoever answers next may be another server, with another clock
      throw error;
    }
  }

  /** The database's time, asked for with every third heartbeat: in between a monotonic clock drifts by some ms at most. */
  private async followClock(): Promise<void> {
    if (this.beatsUntilSync > 0) {
      this.beatsUntilSync--;
      return;
    }
    await this.clock.sync();
    this.beatsUntilSync = BEATS_PER_SYNC - 1;
  }

  private async beat(beat: number): Promise<void> {
    const { ttl_ms, worker_ttl_ms } = this.config.lease;
    const asked = this.clock.monotonic();
    const now = this.clock.now();
    const until = new Date(now.getTime() + ttl_ms);
    const mine = { owner: this.pod.id, partitions: [...this.held.keys(), ...this.unanswered], now };
    if (mine.partitions.length > 0) await store.renewLeases(this.collections, mine, until);
    if (!this.leaving) await store.beatHeart(this.collections, this.workerFacts(now), now);
    const since = new Date(now.getTime() - worker_ttl_ms);
    const pods = await store.livePods(this.collections, JobLane.fast, since);
    this.livePods.tell(pods, this.pod.id);
    const owned = mine.partitions.length > 0 ? await store.readOwned(this.collections, mine) : [];
    if (beat !== this.beats) return;
    this.unanswered = await this.reconcile(owned, asked + ttl_ms, until);
    if (!this.leaving) await this.balance(fairShare(this.config.partitions, pods, this.pod.id), now);
    await this.releaseDry();
    this.announce();
    await this.judgeTaken();
  }

  private announce(): void {
    const taken = this.readable().filter((partition) => !partition.announced);
    for (const partition of taken) partition.announced = true;
    if (taken.length > 0)
      this.events.emit({ type: 'partitions_taken', partitions: taken.map((each) => each.partition) });
  }

  /**
   * Gives back what is on its way out and idle. Called when a cell ran dry, and with every heartbeat. A pod that leaves gives
   * back what is not judged yet as well, marks and all: the next owner need not wait for the lease to judge it, and where
   * a judgement is still under way here, one of the two finds its rows judged.
   */
  async releaseDry(): Promise<void> {
    const open = (owned: OwnedPartition): boolean => owned.judged || this.leaving;
    const ready = [...this.held.values()].filter((owned) => owned.releasing && owned.dry && open(owned));
    for (const owned of ready) {
      owned.lost = true; // first: nothing of it may start while the release is under way
      this.held.delete(owned.partition);
      this.unreleased.add(owned);
    }
    const released: number[] = [];
    const release = async (owned: OwnedPartition): Promise<void> => {
      const marks = [...owned.foreign, ...owned.unjudged.map(({ token }) => token)];
      if (await store.releasePartition(this.collections, owned.term, marks)) released.push(owned.partition);
      this.unreleased.delete(owned);
    };
    const answers = await Promise.allSettled([...this.unreleased].map(release));
    if (released.length > 0) this.events.emit({ type: 'partitions_released', partitions: released });
    for (const answer of answers) if (answer.status === 'rejected') throw answer.reason;
  }

  private async releaseIdle(): Promise<void> {
    for (const owned of this.held.values()) owned.releasing = true;
    await this.releaseDry();
  }

  /**
   * Clean stop: gives back every idle partition, takes this pod off the list and takes no partition any more. Called when
   * the stop begins, so that other pods serve what is idle here while the last handlers run, and when they have ended.
   * What was taken over is judged first, since nobody may come after this pod; what cannot be judged is given back as it is.
   * What still runs then is left to expire.
   */
  async leave(): Promise<void> {
    this.leaving = true;
    try {
      await this.giveBack();
    } finally {
      const deadSince = new Date(this.clock.now().getTime() - 24 * 3_600_000);
      await store.removeWorker(this.collections, this.pod.id, deadSince);
    }
  }

  private async giveBack(): Promise<void> {
    try {
      await this.judgeTaken();
    } finally {
      await this.releaseIdle();
    }
  }

  /**
   * Judges what the last owners left in flight. A partition whose judgement fails stays closed and is tried again with the
   * next heartbeat; one whose judgement takes long is opened when it ends.
   */
  private async judgeTaken(): Promise<void> {
    this.judging ??= this.judgeEach().finally(() => (this.judging = undefined));
    await within(this.clock, JUDGE_PATIENCE_MS, this.judging);
  }

  private async judgeEach(): Promise<void> {
    const failures: unknown[] = [];
    for (const owned of this.held.values()) {
      if (owned.judged) continue;
      try {
        if ((await this.judge.judge(owned)) === 'lost') this.lose(owned);
      } catch (error) {
        failures.push(error);
      }
    }
    this.announce();
    if (failures.length > 0) throw failures[0];
  }

  /** Answers the partitions that are ours, but whose lease this heartbeat did not renew. */
  private async reconcile(rows: PartitionDoc[], deadline: number, until: Date): Promise<number[]> {
    const renewed = ({ lease_until }: PartitionDoc): boolean => lease_until !== null && lease_until >= until;
    const byPartition = new Map(rows.map((row) => [row.partition, row]));
    for (const owned of this.held.values()) {
      const row = byPartition.get(owned.partition);
      if (row?.lease_token !== owned.term.lease_token) this.lose(owned);
      else if (renewed(row)) owned.deadline = deadline;
    }
    if (this.leaving) return []; // what is being given back may still look like ours
    // A take whose answer was lost: ours in the database under a token we never saw answered. Left alone nobody would
    // serve it until its lease has run out. One that was carried out behind the renewal has an older lease: next time.
    const found = rows.filter((row) => !this.held.has(row.partition));
    const unknown = found.filter(renewed);
    const partitions = unknown.map((row) => row.partition);
    for (const lease_token of new Set(unknown.map((row) => row.lease_token!))) {
      this.adopt(await store.readTerm(this.collections, { partitions, owner: this.pod.id, lease_token }), deadline);
    }
    return found.filter((row) => !renewed(row)).map((row) => row.partition);
  }

  private async balance(share: number, now: Date): Promise<void> {
    const staying = [...this.held.values()].filter((owned) => !owned.releasing);
    for (const owned of staying.sort((a, b) => a.running - b.running).slice(0, Math.max(0, staying.length - share))) {
      owned.releasing = true;
    }
    const missing = share - staying.length;
    if (missing <= 0) return;
    const free = await store.readFree(this.collections, now);
    if (free.length > 0) await this.take(this.pick(free, missing));
  }

  private async take(partitions: number[]): Promise<void> {
    const asked = this.clock.monotonic();
    const now = this.clock.now();
    const until = new Date(now.getTime() + this.config.lease.ttl_ms);
    const lease_token = this.ids.token();
    const before = this.unanswered;
    const unanswered = (this.unanswered = [...before, ...partitions]);
    const won = await store.takePartitions(this.collections, {
      partitions,
      owner: this.pod.id,
      lease_token,
      now,
      until,
    });
    if (this.unanswered === unanswered) this.unanswered = before;
    this.adopt(won, asked + this.config.lease.ttl_ms);
    if (this.leaving) await this.giveBack(); // nobody else would: the stop may have gone on meanwhile
  }

  private adopt(rows: PartitionDoc[], deadline: number): void {
    const givenUp = new Set([...this.unreleased].map(({ term }) => `${term.partition} ${term.lease_token}`));
    for (const { partition, lease_token, inflight, rev } of rows) {
      // Held already: the answer of a take that was given up may come after another heartbeat has found what it won.
      if (givenUp.has(`${partition} ${lease_token}`) || this.held.has(partition)) continue;
      const term = { partition, owner: this.pod.id, lease_token: lease_token! };
      this.held.set(partition, new OwnedPartition(term, deadline, inflight, rev ?? 0));
    }
  }

  /** At random, so that pods that boot together do not all try the same ones. */
  private pick(free: number[], count: number): number[] {
    const shuffled = free.map((partition) => ({ partition, at: this.random() })).sort((a, b) => a.at - b.at);
    return shuffled.slice(0, count).map(({ partition }) => partition);
  }

  private workerFacts(now: Date): Parameters<typeof store.beatHeart>[1] {
    this.startedAt ??= now;
    const { id: pod_id, host } = this.pod;
    const lanes = [JobLane.fast, JobLane.long];
    const targets = this.targets.all().map(({ name }) => name);
    return {
      pod_id,
      host,
      started_at: this.startedAt,
      version: process.version,
      lanes,
      ...(targets.length <= MAX_TOLD_TARGETS && { targets }),
    };
  }
}
