/**
 * One round of a cell (design, section 5): kept outcome, page, sequences, then batch by batch: lease, mark, run,
 * outcome. The order of these steps IS the guarantee; `model` rules and tests hold it in place:
 * nothing runs before a kept outcome is written; nothing starts without a mark; no mark without a lease that outlives
 * the send; the lease is looked at once more after the mark.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { crashPoint } from '../../common/ports/crash_points.js';
import { ID_SOURCE, type IdSource } from '../../common/ports/ids.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { DeliveryMode } from '../jobs.types.js';
import { planPage, takeBatch, type HeldKey } from '../policy/ordering.js';
import { targetVerdict, type RunResult } from '../policy/outcome.js';
import { rowsAtOnce } from '../policy/pause_rules.js';
import { SUSPECT_CRASHES } from '../policy/takeover.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { deferFollowers, goneHeads, releaseFollowers } from '../store/fast_lane.store.js';
import type { JobDoc } from '../store/jobs.schema.js';
import type { Cell } from './cell.js';
import { CellReader } from './cell_reader.js';
import { InflightMarks } from './inflight_marks.js';
import { JobRunner } from './job_runner.js';
import type { RunResults } from './run_results.js';
import { JobOutcome, type PreparedOutcome } from './outcome.service.js';
import { PartitionLeaseService } from './partition_lease.service.js';
import { RateLimiter, type Admission } from './rate_limiter.js';
import { TargetPause, type Passed, type Probe } from './target_pause.js';

/** `again`: there may be more. `empty`: nothing is due. `stopped`: lease, pause or shutdown ended the round. */
export type RoundEnd = 'again' | 'empty' | 'stopped';

type Taken = ReturnType<typeof takeBatch<JobDoc>>;

/** Ends the round, or tells the keys of which nothing more of this page may start. */
type BatchEnd = { end: RoundEnd } | { blocked: Set<string> };

/** It runs alone in its cell (`takeBatch`), so it is the only one. */
const suspectIn = (batch: readonly (readonly JobDoc[])[]): JobDoc | undefined =>
  batch[0]?.find(({ crashes }) => crashes >= SUSPECT_CRASHES);

@Injectable()
export class CellRound {
  /** The cell whose suspect runs, of all cells of this pod. */
  private suspectOf: Cell | undefined;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(CellReader) private readonly reader: CellReader,
    @Inject(InflightMarks) private readonly marks: InflightMarks,
    @Inject(JobRunner) private readonly runner: JobRunner,
    @Inject(JobOutcome) private readonly outcome: JobOutcome,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(RateLimiter) private readonly limiter: RateLimiter,
  ) {}

  /** `probe`: the target rests and this is the one run that may find out whether it is back. */
  async run(cell: Cell, { probe, stopping }: { probe?: Probe; stopping(): boolean }): Promise<RoundEnd> {
    if (stopping() || cell.owned.releasing || !this.mayStart(cell)) return 'stopped';
    const now = this.clock.now();
    // Both from before the read: cells of other targets refresh the partition's `rev` too, and this page would not see why.
    const readAt = this.clock.monotonic();
    const { rev } = cell.owned;
    const page = await this.reader.next(cell, now);
    if (!page) return 'empty';
    const plan = planPage(page.rows, now, page.full);
    const deferred = await this.defer(cell, plan.held, now);
    const sequences = probe ? this.probeFirst(cell, plan.sequences) : plan.sequences;
    const end = await this.runPage(cell, sequences, { probe, stopping, readAt, rev });
    if (end !== 'again') return end;
    if (deferred || plan.sequences.length > 0) {
      cell.walkProgress = true;
      return 'again';
    }
    if (cell.walk !== undefined) return 'again';
    // Nothing here, but a walk that ended on this page may have run rows before: probe anew. Else read at the idle pace.
    return page.walked && cell.walkProgress ? 'again' : 'empty';
  }

  /** The grace of a shutdown is over. */
  callOff(message: string): void {
    this.runner.callOffShort(message);
  }

  private mayStart(cell: Cell): boolean {
    return this.leases.mayStart(cell.owned, cell.target.timeout_ms);
  }

  /** A pause found meanwhile, by another cell, another pod or an admin, ends this page. The probe is what it waits for. */
  private mayRun(cell: Cell, probe: Probe | undefined): boolean {
    return this.mayStart(cell) && (probe !== undefined || this.pause.look(cell.target.name) === 'open');
  }

  private async defer(cell: Cell, held: readonly HeldKey<JobDoc>[], now: Date): Promise<boolean> {
    const heads = held.filter((key) => key.may_have_due_followers).map((key) => key.head);
    if (heads.length === 0) return false;
    await deferFollowers(this.collections, heads, now);
    // The page may have been older than an admin's cancel of a head: its followers would wait for nobody.
    const gone = await goneHeads(this.collections, heads, now);
    if (gone.length > 0) await releaseFollowers(this.collections, gone, now);
    return true;
  }

  /** The row that found the target down goes last: it alone may be the trouble. */
  private probeFirst(cell: Cell, sequences: readonly (readonly JobDoc[])[]): (readonly JobDoc[])[] {
    const cause = this.pause.causeOf(cell.target.name);
    const isCause = (sequence: readonly JobDoc[]): number => (sequence[0]!._id.toHexString() === cause ? 1 : 0);
    return [...sequences].sort((a, b) => isCause(a) - isCause(b));
  }

  private async runPage(
    cell: Cell,
    sequences: readonly (readonly JobDoc[])[],
    round: { probe?: Probe; stopping(): boolean; readAt: number; rev: number },
  ): Promise<RoundEnd> {
    const { target } = cell;
    const suspect = (row: JobDoc): boolean => row.crashes > 0 || cell.isIsolated(row);
    let rest = sequences;
    cell.holdsSuspect = false;
    while (rest.length > 0) {
      if (round.stopping() || cell.owned.releasing || !this.mayRun(cell, round.probe)) return 'stopped';
      const max_rows = round.probe ? 1 : rowsAtOnce(this.pause.allowance(target.name), target);
      // A slot is for a start at once: of a key's rows, which run one after the other, one row at a time takes one.
      const max_per_key = target.rate_limit && target.handler ? 1 : Infinity;
      const taken = takeBatch(rest, { max_rows, max_bytes: target.batch_bytes, max_per_key }, suspect);
      const killer = suspectIn(taken.batch);
      if (killer && this.suspectOf) {
        cell.holdsSuspect = true;
        rest = taken.rest.filter((sequence) => sequence[0]!.order_key !== killer.order_key);
        continue;
      }
      if (killer) this.suspectOf = cell;
      const { next, batch } = await this.admitAndRun(cell, taken, round).finally(() => {
        if (killer) this.suspectOf = undefined;
      });
      if ('end' in batch) return batch.end;
      await this.settleRefused(cell, next.refused);
      if (round.probe) return 'again';
      rest = next.rest.filter((sequence) => !batch.blocked.has(sequence[0]!.order_key));
      // Rows read long ago may have been overtaken by an earlier version or an admin: read again before more start.
      if (this.clock.monotonic() - round.readAt > this.config.fast_lane.page_max_age_ms) return 'again';
    }
    return cell.holdsSuspect ? 'stopped' : 'again';
  }

  /** Nothing else of this cell's last page may start. */
  mustWait(cell: Cell): boolean {
    return cell.holdsSuspect && this.suspectOf !== undefined;
  }

  private async admitAndRun(
    cell: Cell,
    taken: Taken,
    round: Parameters<CellRound['runBatch']>[2],
  ): Promise<{ next: Admission; batch: BatchEnd }> {
    const next = await this.limiter.admit(cell.target, taken);
    return { next, batch: await this.runBatch(cell, next, round) };
  }

  private async runBatch(
    cell: Cell,
    { batch, start_by }: Admission,
    { probe, rev, stopping }: { probe?: Probe; rev: number; stopping(): boolean },
  ): Promise<BatchEnd> {
    if (batch.length === 0) return { blocked: new Set() };
    const { target } = cell;
    const token = this.ids.token();
    const unmarked = await this.mark(cell, batch, token, rev);
    if (unmarked) return { end: unmarked };
    const started = this.clock.monotonic();
    // Once more after the mark, and before every start: time may have gone by while it was written.
    const mayStart = (): boolean => !stopping() && this.clock.monotonic() <= start_by && this.mayRun(cell, probe);
    const results = await this.runner.run(target, batch, mayStart);
    const ms = this.clock.monotonic() - started;
    try {
      const down = this.tellPause(cell, results, probe ?? 'open');
      const blocked = this.isolateAndBlock(cell, results);
      return down ? { end: 'stopped' } : { blocked };
    } finally {
      // Whatever is thrown between a send and here: without its outcome the next round would send it again.
      await this.settle(cell, this.outcome.prepare(cell.id, target, results, { token, ms }));
    }
  }

  /** Answers nothing once the mark of the batch stands, and else how the round ends. */
  private async mark(cell: Cell, batch: Taken['batch'], token: string, rev: number): Promise<RoundEnd | undefined> {
    const { target, owned } = cell;
    const ids = batch.flat().map((row) => row._id);
    const mark = { target: target.name, mode: target.delivery_mode, token, ids, at: this.clock.now() };
    const replaces = cell.willMark(token);
    crashPoint('before_mark');
    const marked = await this.marks.write({ term: owned.term, rev, mark, replaces });
    crashPoint('after_mark');
    switch (marked.result) {
      case 'marked':
        cell.hasMarked(token);
        return undefined;
      case 'lost':
        this.leases.lose(owned);
        return 'stopped';
      case 'changed':
        owned.rev = Math.max(owned.rev, marked.rev); // an admin cancelled or brought back rows since the page was read: read it again
        return 'again';
      case 'occupied':
        // What runs under it nobody here knows. Only a new term judges it, so this one must end.
        this.leases.lose(owned);
        throw new Error(
          `the mark ${marked.by}, which this cell did not write, stands in its place: the partition is let go, and ` +
            'whoever takes it when its lease has run out judges that mark',
        );
    }
  }

  /**
   * Rows that never started, so no mark names them: they wait for a slot, or are charged for a rate key that cannot be
   * used. Each keeps the token it was read with, or the mark before would count it as sent.
   */
  private async settleRefused(cell: Cell, refused: RunResults): Promise<void> {
    const postponed: RunResults = new Map();
    for (const [row, result] of refused) {
      if (result.kind === 'postponed') postponed.set(row, result);
      else {
        const token = row.outcome_token ?? this.ids.token();
        await this.settle(cell, this.outcome.prepare(cell.id, cell.target, new Map([[row, result]]), { token, ms: 0 }));
      }
    }
    if (postponed.size > 0) await this.settle(cell, this.outcome.prepare(cell.id, cell.target, postponed, { ms: 0 }));
  }

  /** What the results say about the target. Answers true when it is to rest. */
  private tellPause(cell: Cell, results: RunResults, passed: Passed): boolean {
    const { name, delivery_mode } = cell.target;
    let down = false;
    for (const [row, result] of results) {
      const charged = this.chargeRepeatedUnknown(cell, row, result, results);
      const verdict = targetVerdict(charged, delivery_mode);
      if (verdict === 'up' && !down) this.pause.up(name, passed);
      if (verdict === 'down' && !down) {
        down = true;
        this.pause.down(name, row._id.toHexString(), 'error' in charged ? charged.error : undefined, passed);
      }
      if (charged.kind === 'success') this.pause.forget(row);
    }
    return down;
  }

  /** One row must not keep its target paused: ending unknown again while others succeed counts as an answer. */
  private chargeRepeatedUnknown(cell: Cell, row: JobDoc, result: RunResult, results: RunResults): RunResult {
    if (result.kind !== 'unknown' || cell.target.delivery_mode !== DeliveryMode.atLeastOnce) return result;
    if (!this.pause.endedUnknownAgain(cell.target.name, row._id.toHexString())) return result;
    if (results.size > 1) {
      cell.isolate(row); // the batch ended unknown, not surely this row: next time it runs alone
      return result;
    }
    const charged: RunResult = { kind: 'answered', error: result.error };
    results.set(row, charged);
    return charged;
  }

  /** Keys whose row did not succeed start nothing more of this page. */
  private isolateAndBlock(cell: Cell, results: RunResults): Set<string> {
    const blocked = new Set<string>();
    for (const [row, result] of results) {
      if (result.kind === 'answered' && result.speaks_for_many) cell.isolate(row);
      else if (result.kind === 'success' || result.kind === 'answered') cell.reunite(row);
      if (result.kind !== 'success') blocked.add(row.order_key);
    }
    return blocked;
  }

  /** A database that is gone must not lose what we know: the outcome is kept, and nothing else of the cell runs. */
  private async settle(cell: Cell, prepared: PreparedOutcome): Promise<void> {
    cell.kept = prepared;
    cell.owned.kept++;
    try {
      await this.writeKept(cell);
    } catch (error) {
      this.events.emit({ type: 'outcome_kept', ...cell.id, error });
      throw error;
    }
  }

  /**
   * Writes the outcome that a cell keeps, if it keeps one. Before anything else of it runs, and also when its term is over:
   * it is still true, and still fenced.
   */
  async writeKept(cell: Cell): Promise<void> {
    if (!cell.kept) return;
    await this.outcome.write(cell.kept);
    cell.kept = undefined;
    cell.owned.kept--;
  }
}
