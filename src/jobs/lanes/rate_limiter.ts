/**
 * Asks for slots before rows start: one command per distinct rate key of a batch. Tells what must not start, and when it
 * comes due; never starts anything itself. A target without a `rate_limit` costs nothing here.
 *
 * The limit counts slots, so a row must start soon after it got its own: `start_by` is the last moment to do so.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { JobsEvents } from '../jobs.events.js';
import { cutAtRefused, rateKeyOf, slotTimes } from '../policy/rate_limit.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { JobDoc } from '../store/jobs.schema.js';
import { takeRateSlots } from '../store/rate_limit.store.js';
import type { RegisteredTarget } from '../targets/job_targets.registry.js';
import { toJob } from './row_ref.js';
import type { RunResults } from './run_results.js';
import type { RunningRow } from './running_row.js';

/** Longest time between a slot and the start it was taken for, in ms. */
const START_WITHIN_MS = 1_000;

export interface Admission {
  readonly batch: JobDoc[][];
  readonly rest: (readonly JobDoc[])[];
  /** First rows of their keys that must wait, or have no rate key: each with its result. Their keys are in none of the two. */
  readonly refused: RunResults;
  /** Monotonic time after which nothing of the batch may start any more. */
  readonly start_by: number;
}

@Injectable()
export class RateLimiter {
  constructor(
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /**
   * Fast lane: cuts a batch down to what may start. Keys of `rest` whose head waits for the same slots wait with them, so
   * that a page full of one rate key asks once.
   */
  async admit(target: RegisteredTarget, cut: { batch: JobDoc[][]; rest: (readonly JobDoc[])[] }): Promise<Admission> {
    if (!target.rate_limit) return { ...cut, refused: new Map(), start_by: Infinity };
    const start_by = this.clock.monotonic() + START_WITHIN_MS;
    const running = new Set(cut.batch.map(([head]) => head!.order_key));
    const waiting = cut.rest.flatMap(([head]) => (running.has(head!.order_key) ? [] : [head!]));
    const answer = await this.ask(target, cut.batch.flat(), waiting);
    const { start, heads } = cutAtRefused(cut.batch, (row) => answer.has(row));
    const refused = [...heads, ...waiting.filter((row) => answer.has(row))];
    const held = new Set(refused.map((row) => row.order_key));
    return {
      batch: start,
      rest: cut.rest.filter(([head]) => !held.has(head!.order_key)),
      refused: new Map(refused.map((row) => [row, answer.get(row)!])),
      start_by,
    };
  }

  /**
   * Long lane: claimed rows that got no slot are told so, and go back without having run. Those that are to go back for
   * another reason ask for none, and keep their reason.
   */
  async judgeClaimed(rows: readonly RunningRow[]): Promise<void> {
    const byTarget = new Map<RegisteredTarget, RunningRow[]>();
    for (const running of rows) {
      if (!running.target.rate_limit || running.refusal) continue;
      byTarget.set(running.target, [...(byTarget.get(running.target) ?? []), running]);
    }
    await Promise.all(
      [...byTarget].map(async ([target, claimed]) => {
        const start_by = this.clock.monotonic() + START_WITHIN_MS;
        const answer = await this.ask(target, claimed.map(({ row }) => row), []); // prettier-ignore
        for (const running of claimed) {
          running.refusal = answer.get(running.row);
          running.startBy = start_by;
        }
      }),
    );
  }

  /** Results of the rows that must not start. `waiting` rows take no slots, but share the refusal of a key that is full. */
  private async ask(
    target: RegisteredTarget,
    rows: readonly JobDoc[],
    waiting: readonly JobDoc[],
  ): Promise<RunResults> {
    const results: RunResults = new Map();
    const asking = this.byKey(target, rows, results);
    const behind = this.byKey(target, waiting, new Map());
    const refusals = [...asking].map(async ([key, wanted]) => {
      const now = this.clock.now();
      const window = target.rate_limit!;
      const slots = { target: target.name, key, window, now, want: wanted.length };
      const { granted, taken } = await takeRateSlots(this.collections, slots);
      if (granted === wanted.length) return 0;
      const refused = [...wanted.slice(granted), ...(behind.get(key) ?? [])];
      const times = slotTimes(taken, window, now, refused.length);
      refused.forEach((row, index) => results.set(row, { kind: 'postponed', until: times[index]! }));
      return refused.length;
    });
    const count = (await Promise.all(refusals)).reduce((sum, refused) => sum + refused, 0);
    if (count > 0) this.events.emit({ type: 'rate_limited', target: target.name, rows: count });
    return results;
  }

  /** A key that cannot be used is its row's failure: charged, so that it ends, and told to no other row. */
  private byKey(target: RegisteredTarget, rows: readonly JobDoc[], faults: RunResults): Map<string, JobDoc[]> {
    const keys = new Map<string, JobDoc[]>();
    for (const row of rows) {
      try {
        const key = rateKeyOf(target.rate_limit!, toJob(row));
        keys.set(key, [...(keys.get(key) ?? []), row]);
      } catch (error) {
        faults.set(row, { kind: 'answered', error });
      }
    }
    return keys;
  }
}
