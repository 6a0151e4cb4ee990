/**
 * The engine's health: what hinders it, since when, told as events (once when it begins, again every few minutes while it
 * lasts, once when it is over) and as a state. `degraded` never means "restart this pod": most problems are of the whole
 * engine, and a restart would take away a pod that works. Asks the database once a minute; never throws.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { EventLoopWatch } from '../../common/ports/event_loop.js';
import { RunLoop } from '../../common/run_loop.js';
import { JobsEvents, type HealthProblem } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { logText } from '../policy/log_text.js';
import { EngineLoops } from './engine_loops.js';
import { OwnershipCheck } from './ownership_check.js';

export interface HealthReport {
  readonly status: 'up' | 'degraded';
  readonly details: {
    /** What is wrong now; empty when all is well. `since`: the database's time. `count`: partitions, names or loops. */
    readonly problems: Readonly<Partial<Record<HealthProblem, { since: Date; count: number; detail: string }>>>;
    /** Per loop, how long a good round is overdue, in ms. */
    readonly loops_late_ms: Readonly<Record<string, number>>;
    /** Longest time of the last 30 to 60 s that this process did not get to its work, in ms. */
    readonly event_loop_blocked_ms: number;
  };
}

interface Problem {
  since: Date;
  toldAt: number;
  count: number;
  detail: string;
}

interface Finding {
  readonly count: number;
  readonly detail: string;
}

export const HEALTH_PROBLEMS: readonly HealthProblem[] = [
  'no_owner',
  'unknown_target',
  'loop_stalled',
  'event_loop_blocked',
  'database_unreachable',
];

/** Loops and event loop are looked at this often; that costs no command. */
const TICK_MS = 10_000;
const WINDOW_MS = 30_000;
/** After a failed or unsure look at the database. */
const SOON_MS = 20_000;
const ANSWER_MS = 10_000;
const SHOWN = 5;

@Injectable()
export class EngineHealth {
  readonly loop: RunLoop;
  private readonly problems = new Map<HealthProblem, Problem>();
  private readonly eventLoop = new EventLoopWatch();
  private lookAt = 0;
  private turnAt = 0;
  private stopping = false;
  private giveUp: (() => void) | undefined;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(EngineLoops) private readonly loops: EngineLoops,
    @Inject(OwnershipCheck) private readonly ownership: OwnershipCheck,
  ) {
    this.loop = new RunLoop({
      name: 'health',
      clock,
      step: () => this.runOnce(),
      errorDelayMs: TICK_MS,
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
  }

  start(): void {
    this.eventLoop.start();
    // Not at once: a pod that boots has neither beaten its heart nor taken partitions yet.
    this.lookAt = this.clock.monotonic() + Math.min(SOON_MS, this.config.health.check_ms);
    this.loop.start();
  }

  async stop(): Promise<void> {
    this.stopping = true;
    this.giveUp?.(); // a database that does not answer must not hold up the shutdown
    await this.loop.stop();
    this.eventLoop.stop();
  }

  /** What this pod knows now. No command: the database is asked by the loop. */
  check(): HealthReport {
    this.lookAround();
    const problems = Object.fromEntries(
      [...this.problems].map(([name, { since, count, detail }]) => [name, { since, count, detail }]),
    );
    return {
      status: this.problems.size === 0 ? 'up' : 'degraded',
      details: {
        problems,
        loops_late_ms: Object.fromEntries(this.loops.all().map((loop) => [loop.name, Math.round(loop.lateMs())])),
        event_loop_blocked_ms: Math.round(this.eventLoop.longestMs()),
      },
    };
  }

  /** One round; answers in how many ms the next is due. */
  async runOnce(): Promise<number> {
    const now = this.clock.monotonic();
    this.lookAround();
    if (now >= this.turnAt) {
      this.turnAt = now + WINDOW_MS;
      this.eventLoop.turn();
    }
    if (now >= this.lookAt) await this.askDatabase();
    return TICK_MS;
  }

  private async askDatabase(): Promise<void> {
    const { check_ms } = this.config.health;
    try {
      // A pod that only enqueues has no heartbeat to follow the database's clock with.
      if (this.config.workers === 'off') await this.withinTime(this.clock.sync());
      const { ownerless, unknown, unsure } = await this.withinTime(this.ownership.look());
      this.lookAt = this.clock.monotonic() + (unsure ? Math.min(SOON_MS, check_ms) : check_ms);
      this.tell('database_unreachable', undefined);
      this.tell('no_owner', listed('partitions with due rows and no live owner', ownerless));
      this.tell('unknown_target', listed('rows name targets that no live pod knows', unknown));
    } catch (error) {
      if (this.stopping) return;
      this.lookAt = this.clock.monotonic() + Math.min(SOON_MS, check_ms);
      this.tell('database_unreachable', { count: 1, detail: logText(error) });
    }
  }

  private lookAround(): void {
    const { late_ms, blocked_ms } = this.config.health;
    const late = this.loops.all().filter((loop) => loop.lateMs() > late_ms);
    this.tell(
      'loop_stalled',
      listed(
        `no good round for over ${late_ms} ms`,
        late.map((loop) => loop.name),
      ),
    );
    const blocked = Math.round(this.eventLoop.longestMs());
    this.tell('event_loop_blocked', blocked > blocked_ms ? { count: 1, detail: `for ${blocked} ms` } : undefined);
  }

  private tell(problem: HealthProblem, found: Finding | undefined): void {
    const known = this.problems.get(problem);
    const now = this.clock.monotonic();
    if (!found) {
      if (this.problems.delete(problem)) {
        this.events.emit({ type: 'health_changed', problem, state: 'ended', detail: known!.detail });
      }
      return;
    }
    const again = known !== undefined && now - known.toldAt >= this.config.health.repeat_ms;
    const toldAt = known && !again ? known.toldAt : now;
    this.problems.set(problem, { since: known?.since ?? this.clock.now(), toldAt, ...found });
    if (known && !again) return;
    this.events.emit({ type: 'health_changed', problem, state: known ? 'lasts' : 'began', detail: found.detail });
  }

  /** A driver may wait for its server for half a minute; whoever asks for the health must know before. */
  private async withinTime<T>(work: Promise<T>): Promise<T> {
    let cancel = (): void => undefined;
    const late = new Promise<never>((_, reject) => {
      this.giveUp = () => reject(new Error(`no answer within ${ANSWER_MS} ms`));
      const timer = this.clock.after(ANSWER_MS, this.giveUp);
      cancel = () => timer.cancel();
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      this.giveUp = undefined;
      cancel();
    }
  }
}

function listed(what: string, items: readonly (string | number)[]): Finding | undefined {
  if (items.length === 0) return undefined;
  const more = items.length > SHOWN ? ` and ${items.length - SHOWN} more` : '';
  return { count: items.length, detail: `${what}: ${items.slice(0, SHOWN).join(', ')}${more}` };
}
