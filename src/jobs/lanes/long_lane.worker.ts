/**
 * The long lane: claims due rows within this pod's slots, runs them in the background, ends them through `JobOutcome`.
 * Which rows: policy/claim_plan.ts. Renewal, cancel and progress of what runs: claim_keeper.ts. What a dead pod left:
 * claim_sweeper.ts.
 *
 * A claim is one token for a batch of rows: read due ids, one guarded update, read by token. What if the update's reply is
 * lost? The rows are ours under a token we know: the next round reads them by it and runs them. If we die before that,
 * their lease runs out and they are reclaimed. What if we wake up ten minutes after the read? The deadline, counted from
 * before the update, has passed: the row is not started, and its fenced release matches nothing when somebody else has it.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { RunLoop } from '../../common/run_loop.js';
import { within } from '../../common/utils/within.js';
import { JobsEvents, type HintedCell } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import { idleDelayMs } from '../policy/poll_delay.js';
import { SUSPECT_CRASHES } from '../policy/takeover.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';
import { ClaimKeeper } from './claim_keeper.js';
import { LongClaims } from './long_claims.js';
import { LongRun } from './long_run.js';
import { RateLimiter } from './rate_limiter.js';
import type { RunningRow } from './running_row.js';
import { GIVE_UP_MS } from './shutdown.js';
import { TargetPause } from './target_pause.js';

/** How long a suspect waits while another one runs. */
const SUSPECT_WAIT_MS = 10_000;

@Injectable()
export class LongLaneWorker {
  /** Targets known to have due rows. */
  private readonly hot = new Set<string>();
  /** Runs under way, until their outcome is written. */
  private readonly active = new Map<RunningRow, Promise<void>>();
  readonly loop: RunLoop;
  private readonly unsubscribe: () => void;
  private emptyChecks = 0;
  private lookAt = 0;
  private stopping = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) events: JobsEvents,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(ClaimKeeper) private readonly keeper: ClaimKeeper,
    @Inject(LongClaims) private readonly claims: LongClaims,
    @Inject(LongRun) private readonly runs: LongRun,
    @Inject(RateLimiter) private readonly limiter: RateLimiter,
  ) {
    this.loop = new RunLoop({
      name: 'long_lane',
      clock,
      step: () => this.check(),
      errorDelayMs: config.long_lane.error_poll_ms,
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
    this.unsubscribe = events.on((event) => {
      if (event.type === 'hinted') this.hinted(event.cells);
      if (event.type === 'target_resumed' || event.type === 'target_ramping') this.hint(event.target);
    });
  }

  start(): void {
    this.loop.start();
  }

  /**
   * Starts nothing more and waits, up to `graceMs`, for what runs to end with its outcome written. Then signals tell the
   * handlers to give up, and what may run again is given back. True when everything had ended by itself.
   */
  async stop(graceMs: number): Promise<boolean> {
    this.stopping = true;
    this.unsubscribe();
    const drained = this.loop.stop().then(async () => {
      await this.giveBackUnstarted();
      await this.idle();
    });
    if (await within(this.clock, graceMs, drained)) return true;
    for (const row of this.active.keys()) row.callOff('shutdown', 'the pod stops');
    if (!(await within(this.clock, GIVE_UP_MS, drained))) {
      await within(this.clock, GIVE_UP_MS, this.runs.giveBack([...this.active.keys()]));
    }
    this.runs.giveUp();
    return false;
  }

  /** A claim whose reply was lost may have won rows that nobody will start any more. */
  private async giveBackUnstarted(): Promise<void> {
    // A database that is away must not fail the stop: the leases run out by themselves.
    const rows = await this.claims.adopt().catch(() => []);
    this.startRows(rows, false);
  }

  /** One round of claims whose rows are run to their end, outcome written. Answers how many; drives tests and nothing else. */
  async runOnce(): Promise<number> {
    const started = await this.claimAndStart();
    await Promise.all(started.flatMap((row) => this.active.get(row) ?? []));
    return started.length;
  }

  /** One round of claims; what it started runs on in the background. For tests that look at rows while they run. */
  async startOnce(): Promise<number> {
    return (await this.claimAndStart()).length;
  }

  /** Waits until nothing runs any more. */
  async idle(): Promise<void> {
    while (this.active.size > 0) await Promise.all(this.active.values());
  }

  private hinted(cells: readonly HintedCell[] | 'all'): void {
    if (cells !== 'all') return cells.forEach(({ lane, target }) => void (lane === JobLane.long && this.hint(target)));
    this.emptyChecks = 0;
    this.loop.wake();
  }

  /** Rows were committed for this target: look now. */
  hint(target: string): void {
    if (this.targets.get(target)?.lane !== JobLane.long) return;
    this.hot.add(target);
    this.emptyChecks = 0;
    this.loop.wake();
  }

  private async check(): Promise<number> {
    const started = await this.claimAndStart();
    if (started.length > 0) this.emptyChecks = 0;
    else this.emptyChecks++;
    if (this.claims.progressed && this.hot.size > 0 && this.freeSlots() > 0) return 0;
    const idle = idleDelayMs(Math.max(0, this.emptyChecks - 1), this.config.long_lane.idle_poll_ms);
    return Math.min(idle, this.pause.nextProbeMs(JobLane.long) ?? idle);
  }

  private async claimAndStart(): Promise<RunningRow[]> {
    const adopted = await this.claims.adopt();
    await this.startClaimed(adopted);
    const slots = this.freeSlots();
    const open = this.openTargets();
    this.claims.begin(); // whatever the last round did, this one has made no progress yet
    if (this.stopping || slots <= 0 || open.length === 0) return adopted;
    await this.coldCheck(open.map(({ target }) => target));
    const hot = open.filter(({ target }) => this.hot.has(target.name));
    for (const { target } of hot) this.hot.delete(target.name); // a hint that comes meanwhile must survive
    const claimed = hot.length === 0 ? [] : await this.claims.claim(hot, slots, this.stillHot);
    await this.startClaimed(claimed);
    return [...adopted, ...claimed];
  }

  private readonly stillHot = (target: string): void => void this.hot.add(target);

  /** One query for all targets not known to have work, once a second at most while others are hot. */
  private async coldCheck(open: readonly RegisteredTarget[]): Promise<void> {
    const cold = open.map((target) => target.name).filter((name) => !this.hot.has(name));
    const now = this.clock.monotonic();
    if (cold.length === 0 || (this.hot.size > 0 && now < this.lookAt)) return;
    this.lookAt = now + this.config.long_lane.idle_poll_ms[0]!;
    for (const name of await this.claims.findWork(cold)) this.hot.add(name);
  }

  /** Targets that do not rest and have a free place here. */
  private openTargets(): { target: RegisteredTarget; places: number }[] {
    const running = new Map<string, number>();
    for (const { ended, target } of this.active.keys()) {
      if (!ended) running.set(target.name, (running.get(target.name) ?? 0) + 1);
    }
    return this.targets
      .inLane(JobLane.long)
      .map((target) => ({ target, places: this.placesOf(target) - (running.get(target.name) ?? 0) }))
      .filter(({ target, places }) => places > 0 && this.pause.look(target.name) !== 'closed');
  }

  /** A target that just came back starts with a few rows. One that rests is let through by the permit, not by places. */
  private placesOf({ name, concurrency }: RegisteredTarget): number {
    return this.pause.look(name) === 'open' ? Math.min(concurrency, this.pause.allowance(name)) : concurrency;
  }

  /** A slot is free once its handler came back; outcomes still unwritten may hold up at most as many rows again. */
  private freeSlots(): number {
    const { slots } = this.config.long_lane;
    const running = [...this.active.keys()].filter((row) => !row.ended).length;
    return Math.min(slots - running, 2 * slots - this.active.size);
  }

  /**
   * A row that was running when its pod died, twice, may be what killed it, or only its neighbour. One such suspect runs
   * at a time, so that a row which kills its pods takes another with it twice at most, and not every time they come back
   * together. Once is no reason: after one hard stop all rows of a pod would run one after the other.
   */
  private holdSuspects(rows: readonly RunningRow[]): void {
    const suspect = ({ row, ended }: RunningRow): boolean => row.crashes >= SUSPECT_CRASHES && !ended;
    let busy = [...this.active.keys()].some(suspect);
    for (const row of rows.filter(suspect)) {
      if (busy) row.refusal = { kind: 'postponed', until: new Date(this.clock.now().getTime() + SUSPECT_WAIT_MS) };
      busy = true;
    }
  }

  /** Whatever the limiter says, claimed rows must end: unjudged ones go back unrun, and are claimed again. */
  private async startClaimed(rows: readonly RunningRow[]): Promise<void> {
    this.holdSuspects(rows);
    let judged = false;
    try {
      await this.limiter.judgeClaimed(rows);
      judged = true;
    } finally {
      this.startRows(rows, judged);
    }
  }

  private startRows(rows: readonly RunningRow[], judged: boolean): void {
    for (const row of rows) {
      this.keeper.add(row);
      const mayStart = judged && !this.stopping;
      const run = this.runs.run(row, { mayStart, onEnded: () => this.slotFreed(row) }).then(() => {
        this.keeper.remove(row);
        this.active.delete(row);
      });
      this.active.set(row, run);
    }
  }

  private slotFreed({ target }: RunningRow): void {
    // Its code may have a free place again, on whichever row that waited for it.
    if (target.max_running !== undefined) this.hot.add(target.name);
    this.emptyChecks = 0;
    this.loop.wake();
  }
}
