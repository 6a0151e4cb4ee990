/** Who works, who owns what, and what admins did: for people. Tells no lease token. */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { listAudit } from '../store/audit.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { listPartitions, listWorkers } from '../store/engine_state.store.js';
import type { AuditDoc, WorkerDoc } from '../store/jobs.schema.js';
import { idCursor, readIdCursor } from './cursor.js';

const MAX_WORKERS = 1_000;

export interface PartitionState {
  partition: number;
  owner: string | null;
  lease_until: Date | null;
  owned: boolean;
  inflight: { target: string; mode: string; jobs: number; at: Date }[];
}

export interface AuditPage {
  data: AuditDoc[];
  next_cursor?: string;
}

@Injectable()
export class EngineState {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  async partitions(): Promise<PartitionState[]> {
    const now = this.clock.now();
    const rows = await listPartitions(this.collections);
    return rows.map(({ partition, owner, lease_until, inflight }) => ({
      partition,
      owner,
      lease_until,
      owned: owner !== null && lease_until !== null && lease_until > now,
      inflight: inflight.map(({ target, mode, ids, at }) => ({ target, mode, jobs: ids.length, at })),
    }));
  }

  async workers(): Promise<(WorkerDoc & { live: boolean })[]> {
    const since = new Date(this.clock.now().getTime() - this.config.lease.worker_ttl_ms);
    const rows = await listWorkers(this.collections, MAX_WORKERS);
    return rows.map((row) => ({ ...row, live: row.heartbeat_at > since }));
  }

  /** Newest first. */
  async audit({ cursor, limit }: { cursor?: string; limit: number }): Promise<AuditPage> {
    const rows = await listAudit(this.collections, { before: readIdCursor(cursor), limit: limit + 1 });
    const data = rows.slice(0, limit);
    return { data, ...(rows.length > limit && { next_cursor: idCursor(data.at(-1)!._id) }) };
  }
}
