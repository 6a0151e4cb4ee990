/**
 * One target's pause as this pod knows it: the local copy that every round looks at, and the writes that carry what
 * this pod found out to the shared row, one after the other. A write that fails is kept and repeated: the copy is never
 * behind what this pod found out itself.
 */
import type { Ramp, Rest } from '../policy/pause_rules.js';
import type { TargetDoc } from '../store/jobs.schema.js';

export interface KnownPause extends Rest {
  readonly by: TargetDoc['by'];
  readonly reason: string;
  /** Names the finding; none for an admin's pause. */
  readonly token?: string;
  readonly cause?: string;
}

/** The permit of one probe. */
export interface Probe {
  readonly token: string;
  readonly until: Date;
}

type Write = () => Promise<void>;

export class PauseCopy {
  pause: KnownPause | undefined;
  /** The last permit this pod got, while the finding it was given for stands. */
  held: Probe | undefined;
  ramp: Ramp | undefined;
  /** A permit is being asked for: nobody else of this pod asks meanwhile. */
  asking = false;
  /** Grows with every change: what was read from the database before one is out of date. */
  changes = 0;
  private readonly unwritten: Write[] = [];
  private writing: Promise<void> | undefined;

  constructor(
    readonly target: string,
    private readonly onError: (error: unknown) => void,
  ) {}

  set(pause: KnownPause | undefined): void {
    this.changes++;
    this.pause = pause;
    if (pause?.token === undefined || pause.token !== this.held?.token) this.held = undefined;
  }

  /** Queues a write and sends it in the background. */
  write(write: Write): void {
    this.unwritten.push(write);
    void this.flush();
  }

  /** All writes are done. */
  get written(): boolean {
    return this.unwritten.length === 0;
  }

  /** The write that runs right now is the newest: what the database says about it is the truth. */
  get lastWrite(): boolean {
    return this.unwritten.length === 1;
  }

  /** Resolves when everything is written or a write failed. Never rejects. */
  async flush(): Promise<void> {
    if (this.written) return;
    await (this.writing ??= this.send());
  }

  private async send(): Promise<void> {
    try {
      while (!this.written) {
        await this.unwritten[0]!();
        this.unwritten.shift();
      }
    } catch (error) {
      this.onError(error);
    } finally {
      this.writing = undefined;
    }
  }
}

export function fromRow(row: TargetDoc | undefined): KnownPause | undefined {
  if (row?.state !== 'paused') return undefined;
  const { by, reason } = row;
  if (by === 'admin') return { by, reason, probe_at: Infinity, probe_until: 0 };
  return {
    by,
    reason,
    ...(row.token !== undefined && { token: row.token }),
    ...(row.cause !== undefined && { cause: row.cause }),
    probe_at: row.probe_at?.getTime() ?? 0,
    probe_until: row.probe_until?.getTime() ?? 0,
  };
}

export function samePause(a: KnownPause | undefined, b: KnownPause | undefined): boolean {
  const keys = ['by', 'reason', 'token', 'probe_at', 'probe_until'] as const;
  return a === b || (a !== undefined && b !== undefined && keys.every((key) => a[key] === b[key]));
}
