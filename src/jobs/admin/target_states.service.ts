/**
 * The targets as admins see them: what this pod registered, what is or was paused, what rows name; with counts that
 * stay cheap. Pausing and resuming by hand, each with a reason and an audit row in its transaction.
 */
import { Inject, Injectable } from '@nestjs/common';
import { adminError, notFound } from '../../common/http/admin_error.js';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { AdminAudit } from '../admin_audit.service.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import type { JobStatus } from '../jobs.types.js';
import { isTargetUsed, type BoundedCount } from '../store/admin.store.js';
import { countByTarget, countOf, type Counted, type CountedTarget } from '../store/admin_counts.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { TargetDoc } from '../store/jobs.schema.js';
import { listTargets, pauseByAdmin, readTarget, resumeByAdmin } from '../store/target_pause.store.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';

export type StatusCounts = Record<JobStatus, BoundedCount>;

export interface TargetState {
  name: string;
  /** False: this pod has no such target; rows or an earlier pause name it. */
  known: boolean;
  lane?: string;
  delivery_mode?: string;
  state: 'open' | 'paused';
  by?: 'engine' | 'admin';
  actor?: string;
  reason?: string;
  since?: Date;
  counts: StatusCounts;
}

export interface Stats {
  at: Date;
  statuses: StatusCounts;
  targets: { name: string; known: boolean; counts: StatusCounts }[];
}

export interface PauseWish {
  readonly target: string;
  readonly actor: string;
  readonly reason: string;
}

@Injectable()
export class TargetStates {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(AdminAudit) private readonly audit: AdminAudit,
    @Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry,
  ) {}

  async stats(): Promise<Stats> {
    const { names, counted } = await this.count([]);
    return {
      at: this.clock.now(),
      statuses: countsOf((status) => counted.statuses.get(status)!),
      targets: names.map((name) => ({
        name,
        known: this.registry.get(name) !== undefined,
        counts: countsOf((status) => countOf(counted, status, name)),
      })),
    };
  }

  async list(): Promise<TargetState[]> {
    const rows = new Map((await listTargets(this.collections)).map((row) => [row._id, row]));
    const { names, counted } = await this.count([...rows.keys()]);
    return names.map((name) => ({
      ...stateOf(name, this.registry.get(name), rows.get(name)),
      counts: countsOf((status) => countOf(counted, status, name)),
    }));
  }

  /** Nothing of the target starts until it is resumed; what runs, runs on. 404 `not_found`, 409 `invalid_status`. */
  async pause(wish: PauseWish): Promise<TargetState> {
    await this.change('target.pause', wish, pauseByAdmin, 'the target is paused by an admin already');
    return this.stateOf(wish.target);
  }

  /** Opens the target, whoever paused it. 404 `not_found`, 409 `invalid_status`. */
  async resume(wish: PauseWish): Promise<TargetState> {
    await this.change('target.resume', wish, resumeByAdmin, 'the target is open already');
    return this.stateOf(wish.target);
  }

  private async change(
    action: string,
    { target, actor, reason }: PauseWish,
    apply: typeof pauseByAdmin,
    unchanged: string,
  ): Promise<void> {
    await this.requireTarget(target);
    await this.collections.inTransaction(async (tx) => {
      const wish = { target, actor, reason, now: this.clock.now() };
      if ((await apply(tx.session, this.collections, wish)) === 'unchanged') {
        throw adminError(409, 'invalid_status', unchanged);
      }
      await this.audit.record(tx, { actor, action, subject: target, reason });
    });
  }

  /** A misspelt name must not be paused silently. */
  private async requireTarget(name: string): Promise<void> {
    if (this.registry.get(name)) return;
    if (await readTarget(this.collections, name)) return;
    if (!(await isTargetUsed(this.collections, name))) throw notFound('no target has this name');
  }

  private async stateOf(name: string): Promise<TargetState> {
    const row = await readTarget(this.collections, name);
    const known = this.registry.get(name);
    const counted = await countByTarget(this.collections, [{ name, lane: known?.lane }], this.most);
    return {
      ...stateOf(name, known, row),
      counts: countsOf((status) => countOf(counted, status, name)),
    };
  }

  private async count(more: readonly string[]): Promise<{ names: string[]; counted: Counted }> {
    const known = this.registry.all().map((target) => target.name);
    const asked = [...new Set([...known, ...more])].map((name): CountedTarget => {
      return { name, lane: this.registry.get(name)?.lane };
    });
    const counted = await countByTarget(this.collections, asked, this.most);
    const used = [...counted.targets.values()].flatMap((byName) => [...byName.keys()]);
    return { names: [...new Set([...asked.map((target) => target.name), ...used])].sort(), counted };
  }

  private get most(): number {
    return this.config.admin.count_limit;
  }
}

function stateOf(
  name: string,
  known: RegisteredTarget | undefined,
  row: TargetDoc | undefined,
): Omit<TargetState, 'counts'> {
  return {
    name,
    known: known !== undefined,
    ...(known && { lane: known.lane, delivery_mode: known.delivery_mode }),
    state: row?.state ?? 'open',
    ...(row && { by: row.by, reason: row.reason, since: row.since }),
    ...(row?.actor !== undefined && { actor: row.actor }),
  };
}

function countsOf(find: (status: JobStatus) => BoundedCount): StatusCounts {
  return { PENDING: find('PENDING'), RUNNING: find('RUNNING'), DEAD: find('DEAD'), DONE: find('DONE') };
}
