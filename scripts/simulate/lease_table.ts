// `job_partitions` and `job_workers` in memory: the filters and updates of store/partition_lease.store.ts, word for word
// in what they match, and what each costs the server with the indexes there are (store/jobs.schema.ts): a filter that
// names partitions looks at these, one on `lease_until` or `heartbeat_at` alone has no index and looks at every document.
// Must never be kinder than the store.

export interface PartitionRow {
  readonly partition: number;
  owner: string | null;
  lease_token?: number;
  lease_until: number | null;
}

export interface Term {
  readonly partition: number;
  readonly owner: string;
  readonly lease_token: number;
}

export interface Mine {
  readonly owner: string;
  readonly partitions: readonly number[];
  readonly now: number;
}

export const COMMANDS = [
  'hello',
  'renew',
  'beat',
  'live_pods',
  'owned',
  'free',
  'take',
  'read_term',
  'release',
  'pauses',
  'remove_worker',
] as const;
export type CommandName = (typeof COMMANDS)[number];

export interface Costs {
  commands: Record<CommandName, number>;
  documents_written: number;
  documents_examined: number;
  documents_returned: number;
}

export const noCosts = (): Costs => ({
  commands: Object.fromEntries(COMMANDS.map((name) => [name, 0])) as Record<CommandName, number>,
  documents_written: 0,
  documents_examined: 0,
  documents_returned: 0,
});

/** Owned by somebody whose lease holds. */
const isLive = ({ owner, lease_until }: PartitionRow, now: number): boolean =>
  owner !== null && lease_until !== null && lease_until > now;

export class LeaseTable {
  costs = noCosts();
  readonly rows: readonly PartitionRow[];
  /** In the order of the names: sorting the list again, as every pod does, then costs the simulation little. */
  private heartbeats = new Map<string, number>();

  constructor(
    partitions: number,
    private readonly pausedTargets = 0,
  ) {
    this.rows = Array.from({ length: partitions }, (_, partition) => ({ partition, owner: null, lease_until: null }));
  }

  hello(): void {
    this.count('hello', { examined: 0 });
  }

  renewLeases(mine: Mine, until: number): void {
    const live = this.stillMine(mine);
    for (const row of live) row.lease_until = until;
    this.count('renew', { examined: mine.partitions.length, written: live.length });
  }

  beatHeart(pod: string, now: number): void {
    const known = this.heartbeats.has(pod);
    this.heartbeats.set(pod, now);
    if (!known) this.heartbeats = new Map([...this.heartbeats].sort(([a], [b]) => (a < b ? -1 : 1)));
    this.count('beat', { examined: 1, written: 1 });
  }

  livePods(since: number): string[] {
    const live = [...this.heartbeats].filter(([, at]) => at > since).map(([pod]) => pod);
    this.count('live_pods', { examined: this.heartbeats.size, returned: live.length });
    return live;
  }

  readOwned(mine: Mine): PartitionRow[] {
    const live = this.stillMine(mine).map((row) => ({ ...row }));
    this.count('owned', { examined: mine.partitions.length, returned: live.length });
    return live;
  }

  readFree(now: number): number[] {
    const free = this.rows.filter((row) => !isLive(row, now)).map((row) => row.partition);
    this.count('free', { examined: this.rows.length, returned: free.length });
    return free;
  }

  /** The update; what was won is read back by a command of its own. */
  takePartitions(take: { partitions: number[]; owner: string; lease_token: number; now: number; until: number }): void {
    let written = 0;
    for (const partition of take.partitions) {
      const row = this.rows[partition]!;
      if (isLive(row, take.now)) continue;
      row.owner = take.owner;
      row.lease_token = take.lease_token;
      row.lease_until = take.until;
      written++;
    }
    this.count('take', { examined: take.partitions.length, written });
  }

  readTerm({ partitions, owner, lease_token }: Omit<Term, 'partition'> & { partitions: readonly number[] }): Term[] {
    const named = partitions.map((partition) => this.rows[partition]!);
    const won = named.filter((row) => row.owner === owner && row.lease_token === lease_token);
    this.count('read_term', { examined: partitions.length, returned: won.length });
    return won.map(({ partition }) => ({ partition, owner, lease_token }));
  }

  releasePartition({ partition, owner, lease_token }: Term): void {
    const row = this.rows[partition]!;
    const ours = row.owner === owner && row.lease_token === lease_token;
    if (ours) {
      row.owner = null;
      row.lease_until = null;
      delete row.lease_token;
    }
    this.count('release', { examined: 1, written: ours ? 1 : 0 });
  }

  listTargets(): void {
    this.count('pauses', { examined: this.pausedTargets, returned: this.pausedTargets });
  }

  removeWorker(pod: string, deadSince: number): void {
    const examined = this.heartbeats.size;
    let written = 0;
    for (const [name, at] of this.heartbeats) {
      if ((name === pod || at < deadSince) && this.heartbeats.delete(name)) written++;
    }
    this.count('remove_worker', { examined, written });
  }

  /** Partitions nobody owns by the database's rule. Not a command. */
  withoutOwner(now: number): number {
    return this.rows.filter((row) => !isLive(row, now)).length;
  }

  private stillMine({ owner, partitions, now }: Mine): PartitionRow[] {
    return partitions
      .map((partition) => this.rows[partition]!)
      .filter((row) => row.owner === owner && isLive(row, now));
  }

  private count(
    name: CommandName,
    { examined, written = 0, returned = 0 }: { examined: number; written?: number; returned?: number },
  ): void {
    this.costs.commands[name]++;
    this.costs.documents_examined += examined;
    this.costs.documents_written += written;
    this.costs.documents_returned += returned;
  }
}
