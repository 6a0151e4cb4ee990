/** Lists and shows jobs. A payload is shown for one job at a time, with its target's `redact` paths masked. */
import { Inject, Injectable } from '@nestjs/common';
import { adminError } from '../../common/http/admin_error.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import type { JsonValue } from '../jobs.types.js';
import { redact, REDACTED } from '../policy/redact.js';
import { countJobs, findDetail, listJobs, type JobFilter, type ListedJob } from '../store/admin.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { idCursor, readIdCursor } from './cursor.js';
import { jobId, noSuchJob } from './jobs_admin.service.js';

/** Pages further back than this are read by cursor: the database would count its way there. */
const MAX_SKIP = 100_000;

export interface JobPage {
  data: ListedJob[];
  total: number;
  /** True where `total` stopped at `admin.count_limit`. */
  total_at_least: boolean;
  page: number;
  limit: number;
  /** Go on here; missing when all rows were looked at. A page may be short, or empty, and still have one. */
  next_cursor?: string;
}

@Injectable()
export class JobsReader {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
  ) {}

  /** Newest first. By `cursor`, or by `page` (from 1) where no cursor is given; not by both. */
  async list(filter: JobFilter, at: { page?: number; cursor?: string; limit: number }): Promise<JobPage> {
    const before = readIdCursor(at.cursor);
    if (before && at.page !== undefined) throw invalid('page: expected either page or cursor');
    const { page = 1, limit } = at;
    const skip = (page - 1) * limit;
    if (skip > MAX_SKIP) throw invalid(`page: expected at most ${MAX_SKIP} rows before it; use cursor`);
    const { count_limit } = this.config.admin;
    const [{ rows, looked_to }, total] = await Promise.all([
      listJobs(this.collections, filter, { before, skip, limit: limit + 1, look: count_limit }),
      countJobs(this.collections, filter, count_limit),
    ]);
    const data = rows.slice(0, limit);
    const last = rows.length > limit ? data.at(-1)!._id : looked_to;
    return {
      data,
      total: total.count,
      total_at_least: total.at_least,
      page,
      limit,
      ...(last && { next_cursor: idCursor(last) }),
    };
  }

  /** The whole row. 404 `not_found`. */
  async detail(id: string): Promise<JobDoc> {
    const row = await findDetail(this.collections, jobId(id));
    if (!row) throw noSuchJob();
    return { ...row, payload: this.shown(row) };
  }

  /** A target that this pod does not know may have paths to hide: then all is hidden. */
  private shown({ target, payload }: JobDoc): JsonValue {
    const known = this.targets.get(target);
    return known ? redact(payload, known.redact) : REDACTED;
  }
}

function invalid(message: string): Error {
  return adminError(400, 'invalid_input', message);
}
