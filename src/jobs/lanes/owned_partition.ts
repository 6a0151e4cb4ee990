/** One term of ownership of one partition, as this pod sees it. Dies with the term: a partition taken again is a new one. */
import type { InflightMark } from '../store/jobs.schema.js';
import type { Term } from '../store/partition_lease.store.js';

export class OwnedPartition {
  /** True when the term is over; nothing of it may start any more. */
  lost = false;
  /** Set when the pod is above its share: cells run dry, then the partition is given back. */
  releasing = false;
  /** Told to the lane as readable. */
  announced = false;
  /** Cells that run right now. */
  running = 0;
  /** Outcomes that could not be written yet. */
  kept = 0;
  /** Tokens of marks that only a pod that knows their targets may judge: they outlast this term. */
  foreign: readonly string[] = [];

  constructor(
    readonly term: Term,
    /** Monotonic time until which the lease is trusted, counted from before it was asked for. */
    public deadline: number,
    /** What the last owner left in flight; judged before anything of this partition runs. */
    public unjudged: InflightMark[],
    /** Count of admin actions on the partition's rows, as last seen; compared by every mark. */
    public rev: number,
  ) {}

  get partition(): number {
    return this.term.partition;
  }

  get judged(): boolean {
    return this.unjudged.length === 0;
  }

  get dry(): boolean {
    return this.running === 0 && this.kept === 0;
  }
}
