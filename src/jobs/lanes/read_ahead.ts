/**
 * Reads a busy target's next candidates while the rows of its last claim run, so that a backlog of short rows does not wait
 * for a read between two claims. A read claims nothing: what became of its rows meanwhile is judged by the claim's own
 * filter, and one that has grown old is thrown away.
 */
import type { Clock } from '../../common/ports/clock.js';
import type { DueRow } from '../store/long_lane.store.js';

/** Claims of a target that follow one another this fast are worth a read ahead; older reads are read again. */
const FRESH_MS = 200;

interface Ahead {
  readonly limit: number;
  readonly at: number;
  readonly rows: Promise<DueRow[] | undefined>;
}

export class ReadAhead {
  private readonly reads = new Map<string, Ahead>();
  private readonly claimedAt = new Map<string, number>();

  constructor(private readonly clock: Clock) {}

  /** What was read ahead for this target; undefined when there is nothing, or nothing fresh. */
  async take(target: string, limit: number): Promise<DueRow[] | undefined> {
    const ahead = this.reads.get(target);
    this.reads.delete(target);
    if (!ahead || ahead.limit < limit || this.clock.monotonic() - ahead.at > FRESH_MS) return undefined;
    return ahead.rows;
  }

  /** Rows of the target were claimed and more are waiting: reads them now, if claims follow one another fast. */
  begin(target: string, limit: number, read: () => Promise<DueRow[]>): void {
    const at = this.clock.monotonic();
    const before = this.claimedAt.get(target);
    this.claimedAt.set(target, at);
    if (before === undefined || at - before > FRESH_MS) return;
    // A failure is told by the read that the next claim then makes itself.
    this.reads.set(target, { limit, at, rows: read().catch(() => undefined) });
  }
}
