/**
 * Reads a cell's next page: probe, then the ordered read (design, section 5, steps 1 and 2).
 *
 * Light, when the probe comes back short: the rows of the keys it named. Backlog, when it comes back full: a walk over
 * all keys from a cursor, without probes until it ends. The cursor moves past the last key of each page even when that
 * key was cut, so a pass gives each key at most one page, and a hot key starves nobody.
 */
import { Inject, Injectable } from '@nestjs/common';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { probeDueKeys, readOrdered, type ReadRange } from '../store/fast_lane.store.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { Cell } from './cell.js';

export interface Page {
  readonly rows: JobDoc[];
  /** Its end may have cut a key. */
  readonly full: boolean;
  /** Read by a walk through a backlog, not for keys that a probe named. */
  readonly walked: boolean;
}

/** A server cuts an answer near these bytes, before the row that no longer fits. */
const MOST_ANSWER_BYTES = 16 * 1024 * 1024;
/** A page of so many bytes may have been cut anyhow: rows may be larger than they may be enqueued here today. */
const MAYBE_CUT_BYTES = 8 * 1024 * 1024;
/** What a row has beside what `max_payload_bytes` bounds. */
const ROW_BYTES = 64 * 1024;

@Injectable()
export class CellReader {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
  ) {}

  /** Undefined when nothing of the cell is due. */
  async next(cell: Cell, now: Date): Promise<Page | undefined> {
    if (cell.walk === undefined) {
      const { batch_size } = this.config.fast_lane;
      const keys = await probeDueKeys(this.collections, cell.id, now, batch_size);
      if (keys.length === 0) return undefined;
      if (keys.length < batch_size) return { ...(await this.read(cell, { keys: [...new Set(keys)] })), walked: false };
      cell.walk = '';
      cell.walkProgress = false;
    }
    const page = { ...(await this.read(cell, { after: cell.walk })), walked: true };
    cell.walk = page.full ? page.rows.at(-1)!.order_key : undefined;
    return page;
  }

  private async read(cell: Cell, range: ReadRange): Promise<Omit<Page, 'walked'>> {
    const rows = await readOrdered(this.collections, cell.id, range, cell.pageSize);
    const bytes = rows.reduce((sum, row) => sum + row.bytes, 0);
    const next = this.config.max_payload_bytes + ROW_BYTES;
    const cut = rows.length > 0 && bytes > Math.min(MAYBE_CUT_BYTES, MOST_ANSWER_BYTES - next);
    const full = rows.length === cell.pageSize || cut;
    if (rows.length > 0) cell.pageSize = this.pageSizeFor(bytes / rows.length);
    return { rows, full };
  }

  /** As many rows as a batch holds, so that large payloads do not fill the memory of every cell. */
  private pageSizeFor(averageBytes: number): number {
    const { batch_size, batch_bytes } = this.config.fast_lane;
    return Math.max(1, Math.min(batch_size, Math.floor((2 * batch_bytes) / Math.max(1, averageBytes))));
  }
}
