// What an onlooker sees who knows every pod: which partition is served by whom, what moved, and whether two pods ever
// trusted the same lease. Knows no policy: it only counts.

export interface Holder {
  readonly id: string;
  trusts(partition: number): boolean;
}

export interface Counts {
  /** Partitions that a pod began to serve. */
  taken: number;
  given_back: number;
  /** Held by a pod that found somebody else's name on it. */
  lost: number;
  /** Asked for by a take, and won by another pod meanwhile. */
  taken_in_vain: number;
  heartbeats: number;
  /** Heartbeats that took partitions or gave some back. */
  moving_heartbeats: number;
}

const noCounts = (): Counts => ({
  taken: 0,
  given_back: 0,
  lost: 0,
  taken_in_vain: 0,
  heartbeats: 0,
  moving_heartbeats: 0,
});

export class Watch {
  counts = noCounts();
  /** Times that a pod got a partition which another one still trusted to be its own. */
  twoOwners = 0;
  /** When the last partition found a pod that serves it; undefined while one has none. */
  allServedAt: number | undefined;
  lastMoveAt = 0;
  private readonly holders = new Map<number, Holder>();

  constructor(
    private readonly partitions: number,
    private readonly now: () => number,
  ) {}

  get unservedCount(): number {
    return this.partitions - this.holders.size;
  }

  /** Forgets what was counted; who serves what stays. */
  startPhase(): void {
    this.counts = noCounts();
    this.lastMoveAt = this.now();
    if (this.allServedAt !== undefined) this.allServedAt = this.now();
  }

  served(partition: number, holder: Holder): void {
    const before = this.holders.get(partition);
    if (before && before !== holder && before.trusts(partition)) this.twoOwners++;
    this.holders.set(partition, holder);
    this.counts.taken++;
    this.lastMoveAt = this.now();
    if (this.unservedCount === 0) this.allServedAt ??= this.now();
  }

  unserved(partition: number, holder: Holder, why?: 'lost' | 'released'): void {
    if (why === 'lost') this.counts.lost++;
    if (why === 'released') this.counts.given_back++;
    this.lastMoveAt = this.now();
    if (this.holders.get(partition) !== holder) return;
    this.holders.delete(partition);
    this.allServedAt = undefined;
  }

  tried(wanted: number, won: number): void {
    this.counts.taken_in_vain += wanted - won;
  }

  beat(moved: boolean): void {
    this.counts.heartbeats++;
    if (moved) this.counts.moving_heartbeats++;
  }
}
