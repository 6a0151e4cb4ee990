/** What happens in the engine, as typed events: logs, metrics, hints and tests all listen here. */
import { Injectable, Logger } from '@nestjs/common';
import type { JobLane } from './jobs.types.js';
import { logText } from './policy/log_text.js';

export interface RowRef {
  id: string;
  target: string;
  code: string;
  dedupe_key: string;
  attempts: number;
}

/** A target's rows in one partition; the long lane asks for the target alone. */
export interface HintedCell {
  target: string;
  partition: number;
  lane: JobLane;
}

/**
 * `unreachable`, `login`, `full`, `refused`: what Redis, or the lack of it, answered. `timeout`: no answer within the
 * deadline, or still none to an earlier job (it may yet run). `busy`: too many on their way. `stopped`: after the
 * shutdown. `failed`: its one run failed. `stalled`: its pod went away while it ran. `unknown_target`, `malformed`:
 * what this pod took out of the queue it cannot run.
 */
export type LossyDropReason =
  | 'unreachable'
  | 'login'
  | 'full'
  | 'refused'
  | 'timeout'
  | 'busy'
  | 'stopped'
  | 'failed'
  | 'stalled'
  | 'unknown_target'
  | 'malformed';

/**
 * `no_owner`: due rows of a partition that no live pod owns. `unknown_target`: rows of a target or schedule that no live
 * pod knows. `loop_stalled`: no good round for too long. `event_loop_blocked`: this process did not get to its work.
 */
export type HealthProblem =
  'no_owner' | 'unknown_target' | 'loop_stalled' | 'event_loop_blocked' | 'database_unreachable';

export type JobsEvent =
  /** Rows are committed. Lanes listen to `hinted` instead. */
  | { type: 'enqueued'; rows: HintedCell[] }
  /** These cells may have work, on whichever pod it was enqueued: look at them now. Only a hint, it may be missing. */
  | { type: 'hinted'; cells: HintedCell[] | 'all' }
  /** A hint of another pod could not be read, and was ignored. */
  | { type: 'hint_ignored' }
  /** Jobs of a lossy target that will not run, or whose one run failed. */
  | { type: 'lossy_dropped'; target: string; count: number; reason: LossyDropReason }
  /** The drops of the last while in one sum: at most one of these a second. */
  | { type: 'lossy_drops_summed'; drops: { target: string; count: number; reason: LossyDropReason }[] }
  /** Redis, as one use of it sees it: told once per change. */
  | { type: 'redis_state'; use: 'lossy' | 'wake_up'; state: 'up' | 'down'; error?: unknown }
  /** Rows did not start because their rate limit was used up; they come due when slots free. */
  | { type: 'rate_limited'; target: string; rows: number }
  /** A handler was called with rows of its target: one, or a whole batch. */
  | { type: 'run_started'; target: string; rows: number }
  | { type: 'run_ended'; row: RowRef; result: string; ms: number }
  | { type: 'dead'; row: RowRef; reason: string }
  /**
   * A write that ends runs matched fewer rows than it named: somebody else had ended them. No partition: the write was
   * shared by several.
   */
  | { type: 'outcome_lost'; target: string; partition?: number; count: number }
  /** The outcome could not be written; it is kept and written before anything else of its cell runs. */
  | { type: 'outcome_kept'; target: string; partition?: number; error: unknown }
  /** Long lane: rows this pod runs (or ran) belong to nobody or to another pod now; their late outcomes change nothing. */
  | { type: 'claim_lost'; target: string; count: number; rows: RowRef[]; where: 'renewal' | 'outcome' }
  /** Long lane: rows were claimed, and ids that another pod won meanwhile. */
  | { type: 'claimed'; rows: number; conflicts: number }
  /** Long lane: leases that had expired while their rows ran. */
  | { type: 'reclaimed'; again: number; dead: number; cancelled: number }
  /** An admin wants this RUNNING row gone: the pod that runs it aborts its handler. */
  | { type: 'cancel_requested'; id: string }
  /** DEAD rows were removed because an admin skipped them. */
  | { type: 'skipped'; rows: RowRef[] }
  /** A row was removed because an admin cancelled it. */
  | { type: 'cancelled'; row: RowRef }
  /** A target's `on_dead` threw, did not come back or aborts its transaction; the row is DEAD without what it would have written. */
  | { type: 'on_dead_failed'; row: RowRef; error: unknown }
  | { type: 'round_failed'; target: string; partition: number; error: unknown }
  | { type: 'loop_failed'; loop: string; error: unknown }
  /** The database went away while this pod boots; it tries again, for that long at most. */
  | { type: 'boot_waits'; error: unknown; left_ms: number }
  | { type: 'partitions_taken'; partitions: number[] }
  | { type: 'partitions_released'; partitions: number[] }
  | { type: 'partitions_lost'; partitions: number[] }
  | { type: 'taken_over'; partition: number; target: string; dead: number; counted: number }
  /** This pod found it down, or learned of a pause. `ms`: until the next probe; none where an admin must resume it. */
  | { type: 'target_paused'; target: string; by: 'engine' | 'admin'; reason: string; ms?: number }
  | { type: 'target_resumed'; target: string }
  /** This pod got the one permit to try a resting target. */
  | { type: 'target_probed'; target: string }
  /** A target that came back may run more rows at once; `Infinity`: nothing holds it back any more. */
  | { type: 'target_ramping'; target: string; places: number }
  /** Told when a problem begins, every few minutes while it lasts, and when it is over. `detail`: names and numbers, bounded. */
  | { type: 'health_changed'; problem: HealthProblem; state: 'began' | 'lasts' | 'ended'; detail: string }
  /** A slot of a schedule got no run: at the tick (nothing enqueued) or at its run (the row ended without its handler). */
  | {
      type: 'slot_skipped';
      code: string;
      slot: Date;
      /** Several skipped at once: the oldest of them; `slot` is the newest. */
      first?: Date;
      at: 'tick' | 'run';
      reason: string;
    }
  | { type: 'slot_enqueued'; code: string; slot: Date }
  /** One schedule cannot be used (a bad stored expression or zone); the others go on. */
  | { type: 'schedule_broken'; code: string; error: unknown };

export type JobsListener = (event: JobsEvent) => void;

@Injectable()
export class JobsEvents {
  private readonly logger = new Logger('Sidelane');
  private readonly listeners = new Set<JobsListener>();

  /** Returns the function that ends the subscription. */
  on(listener: JobsListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  emit(event: JobsEvent): void {
    for (const listener of this.listeners) {
      try {
        listener(event);
      } catch (error) {
        // A listener is an onlooker: it must never end the run it looks at.
        this.logger.error(`a listener of ${event.type} failed: ${logText(error)}`);
      }
    }
  }
}
