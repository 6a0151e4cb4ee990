/** One claimed row while its handler runs, and until its outcome is written. Dies with the claim. */
import { InvalidInputError } from '../../common/errors.js';
import type { RunResult } from '../policy/outcome.js';
import type { JobDoc, JobProgress } from '../store/jobs.schema.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import { LazyAbort } from './lazy_abort.js';
import type { Passed } from './target_pause.js';

/** Why a run was called off; `signal.reason` of the handler. */
export class RunCalledOff extends Error {
  constructor(
    readonly why: 'claim_lost' | 'cancelled' | 'shutdown',
    message: string,
  ) {
    super(message);
    this.name = 'RunCalledOff';
  }
}

const MAX_NOTE_CHARS = 500;

export class RunningRow {
  readonly abort = new LazyAbort();
  /** The handler has come back; only the outcome is still to be written. */
  ended = false;
  calledOff: RunCalledOff['why'] | undefined;
  /** It is not its turn, or it got no slot of its rate limit: how it ends without having started. */
  refusal: RunResult | undefined;
  /** Monotonic time after which its slot is stale. */
  startBy = Infinity;
  private report: Omit<JobProgress, 'at'> | undefined;

  constructor(
    readonly row: JobDoc,
    readonly target: RegisteredTarget,
    /** Monotonic time until which the claim is trusted, counted from before it was asked for. */
    public deadline: number,
    /** As the one probe of a resting target, or because it was open. */
    readonly passed: Passed = 'open',
  ) {}

  get id(): string {
    return this.row._id.toHexString();
  }

  callOff(why: RunCalledOff['why'], message: string): void {
    if (this.ended || this.calledOff === 'claim_lost') return;
    this.calledOff = why;
    this.abort.abort(new RunCalledOff(why, message));
  }

  /** Kept until the next look at the claims: a handler may tell its progress as often as it likes. */
  progress(percent: number, note?: string): void {
    if (typeof percent !== 'number' || !(percent >= 0 && percent <= 100)) {
      throw new InvalidInputError(
        'invalid_progress',
        `progress: expected a number from 0 to 100, got ${percent}`,
        'percent',
      );
    }
    const text = note?.toWellFormed().replaceAll('\0', '').slice(0, MAX_NOTE_CHARS).toWellFormed();
    this.report = { percent, ...(text !== undefined && { note: text }) };
  }

  /** What was told since the last call. */
  takeReport(): Omit<JobProgress, 'at'> | undefined {
    const { report } = this;
    this.report = undefined;
    return report;
  }
}
