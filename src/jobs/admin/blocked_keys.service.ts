/**
 * Keys whose head waits, be it for its retry or for a later start: nothing of such a key runs meanwhile. Promises: one
 * request looks at `admin.count_limit` rows at most, whatever the backlog; the answer then says where to go on.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import type { BoundedCount } from '../store/admin.store.js';
import { readKeysBehind, type KeyPlace, type WaitingRow } from '../store/admin_keys.store.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { keyCursor, readKeyCursor } from './cursor.js';

const READ_ROWS = 1_000;

export interface BlockedKey {
  target: string;
  key: string;
  partition: number;
  head: { _id: WaitingRow['_id']; code: string; version: number; attempts: number; crashes: number };
  /** Nothing of the key starts before this time. */
  until: Date;
  /** `retry`: the head failed. `scheduled`: its caller asked for a later start. */
  reason: 'retry' | 'scheduled';
  last_error?: string;
  followers: BoundedCount;
}

export interface BlockedPage {
  data: BlockedKey[];
  /** Go on here; missing when all keys were looked at. A page may be empty and still have one. */
  next_cursor?: string;
}

@Injectable()
export class BlockedKeys {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  async list({ target, cursor, limit }: { target?: string; cursor?: string; limit: number }): Promise<BlockedPage> {
    const now = this.clock.now();
    const data: BlockedKey[] = [];
    let after: KeyPlace | undefined = readKeyCursor(cursor, target);
    for (let left = this.config.admin.count_limit; left > 0;) {
      const wanted = Math.min(READ_ROWS, left);
      const rows = await readKeysBehind(this.collections, { after, only: target, limit: wanted });
      const ended = rows.length < wanted;
      left -= rows.length;
      for (const key of keysOf(rows)) {
        if (data.length === limit) return { data, next_cursor: keyCursor(after!) };
        after = placeOf(key[0]!);
        // The last key may have been cut by the limit of the read: it has these followers at least.
        const cut = !ended && key.at(-1) === rows.at(-1);
        const blocked = blockedKey(key, now, cut);
        if (blocked) data.push(blocked);
      }
      if (ended) return { data };
    }
    return { data, ...(after && { next_cursor: keyCursor(after) }) };
  }
}

/** Rows come in order, so the rows of a key stand together, its head first. */
function keysOf(rows: readonly WaitingRow[]): WaitingRow[][] {
  const keys: WaitingRow[][] = [];
  for (const row of rows) {
    const last = keys.at(-1);
    if (last && last[0]!.order_key === row.order_key && last[0]!.target === row.target) last.push(row);
    else keys.push([row]);
  }
  return keys;
}

function blockedKey([head, ...followers]: readonly WaitingRow[], now: Date, cut: boolean): BlockedKey | undefined {
  if (!head || head.key === undefined || head.next_run_at <= now) return undefined;
  const { _id, target, key, partition, code, version, attempts, crashes, next_run_at, last_error } = head;
  return {
    target,
    key,
    partition,
    head: { _id, code, version, attempts, crashes },
    until: next_run_at,
    reason: attempts > 0 ? 'retry' : 'scheduled',
    ...(last_error !== undefined && { last_error }),
    followers: { count: followers.length, at_least: cut },
  };
}

function placeOf({ target, partition, order_key }: WaitingRow): KeyPlace {
  return { target, partition, order_key };
}
