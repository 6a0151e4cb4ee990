/**
 * The only place that ends a run, for both lanes: decides per row (policy/outcome), translates (store/outcome_update),
 * applies.
 *
 * What if we die before the write? Fast lane: the mark names the rows, and the next owner judges them. Long lane: the
 * lease runs out, and the row is reclaimed. After it? The rows are settled. What if its reply is lost? The same prepared
 * outcome is written again: every part of it is fenced and done at most once. What if we wake up ten minutes later? The
 * fences match nothing, which is counted (`outcome_lost`, `claim_lost`) and otherwise a normal result.
 */
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { crashPoint } from '../../common/ports/crash_points.js';
import { RANDOM, type Random } from '../../common/ports/random.js';
import { ClaimLostError, errorText, SidelaneError } from '../../common/errors.js';
import { ambientTx, type Tx } from '../../common/utils/transaction.js';
import { JobsEvents, type JobsEvent, type RowRef } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane, JobStatus } from '../jobs.types.js';
import { decideRow, type RowDecision, type RunResult } from '../policy/outcome.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { releaseFollowers, type KeyRef } from '../store/fast_lane.store.js';
import type { JobDoc } from '../store/jobs.schema.js';
import {
  deleteFinished,
  findEnds,
  finishIn,
  writeOutcomeIn,
  writeOutcomes,
  type WrittenOutcomes,
} from '../store/outcome.store.js';
import {
  doneOperation,
  failureOperations,
  postponeOperations,
  stampOperations,
  type Operation,
  type RunRecord,
} from '../store/outcome_update.js';
import { rulesFor, type RegisteredTarget } from '../targets/job_targets.registry.js';
import { FinishedRows } from './finished_rows.js';
import { OnDeadHook } from './on_dead_hook.js';
import { POD, type Pod } from './pod.js';
import { rowRef } from './row_ref.js';
import type { RunResults } from './run_results.js';

/** Where an outcome belongs: a cell, or a target of the long lane. */
export interface OutcomeScope {
  readonly target: string;
  readonly partition?: number;
}

/** A row that is to go DEAD, at this time of its `closed_at`. */
interface Death {
  readonly row: JobDoc;
  readonly at: Date;
  readonly event: JobsEvent;
}

type UpdateOne = Extract<Operation, { updateOne: unknown }>;

/** A decided outcome on its way into the database. Parts that are written are emptied, so it can be written again. */
export interface PreparedOutcome {
  readonly scope: OutcomeScope;
  completed: JobDoc[];
  operations: Operation[];
  /** Rows the operations speak of. */
  rows: JobDoc[];
  /** Of these, the rows that go DEAD: told once it is known that they did. */
  deaths: Death[];
  /** Rows that go DEAD in a transaction of their own, with their target's `on_dead`. */
  dead: (Death & { operation: UpdateOne; unlessMatched: Operation[]; target: RegisteredTarget })[];
  release: KeyRef[];
  events: JobsEvent[];
  /** A write was tried before: fewer matches than rows are then expected, not lost. */
  repeated: boolean;
}

@Injectable()
export class JobOutcome {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(RANDOM) private readonly random: Random,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(FinishedRows) private readonly finished: FinishedRows,
  ) {}

  /** `token`: the mark under which fast-lane rows ran; a long-lane row carries its claim itself. */
  prepare(
    scope: OutcomeScope,
    target: RegisteredTarget,
    results: RunResults,
    { token = '', ms }: { token?: string; ms: number },
  ): PreparedOutcome {
    const now = this.clock.now();
    const prepared = emptyOutcome(scope);
    const stamped: JobDoc[] = [];
    const decide = (row: JobDoc, result: RunResult, random: Random): void => {
      const decision = decideRow(row, result, rulesFor(target, row.code), now, random);
      const ended = endOf(row, result, decision, ms);
      this.place(prepared, { target, row, result, decision, run: { token, now, ms, class: result.kind }, stamped });
      if (releasesFollowers(row, decision)) prepared.release.push(row);
      prepared.events.push(...ended);
    };
    for (const [row, result] of results) {
      try {
        decide(row, result, this.random);
      } catch (error) {
        // What was sent must have its outcome. The kind of the end decides it; the words and the jitter do not.
        decide(row, 'error' in result ? { ...result, error } : result, () => 0);
      }
    }
    prepared.operations.push(...stampOperations(stamped, token));
    prepared.rows.push(...stamped);
    return prepared;
  }

  /** The end of a run that an admin cancelled: the row is removed, whatever its handler made of it. `ms`: if it started. */
  prepareRemoval(scope: OutcomeScope, row: JobDoc, ms?: number): PreparedOutcome {
    const ref = rowRef(row, row.attempts);
    const events: JobsEvent[] = [{ type: 'cancelled', row: ref }];
    if (ms !== undefined) events.unshift({ type: 'run_ended', row: ref, result: 'cancelled', ms });
    return { ...emptyOutcome(scope), completed: [row], events };
  }

  /** One delete for what succeeded, one bulk write for the rest. Throws when the database does; call it again then. */
  async write(prepared: PreparedOutcome): Promise<void> {
    const again = prepared.repeated;
    prepared.repeated = true;
    crashPoint('before_outcome');
    if (prepared.completed.length > 0) {
      await this.deleteCompleted(prepared, again);
      prepared.completed = [];
    }
    if (prepared.operations.length > 0) {
      const written = await writeOutcomes(this.collections, prepared.operations);
      if (!again) this.countLost(prepared, prepared.rows, written.updated + written.deleted);
      await this.tellEnds(prepared, { ...prepared, written, again });
      prepared.operations = [];
    }
    crashPoint('after_outcome'); // followers are not released yet
    while (prepared.dead.length > 0) {
      await this.writeDead(prepared, prepared.dead[0]!, again);
      prepared.dead.shift();
    }
    if (prepared.release.length > 0) {
      await releaseFollowers(this.collections, prepared.release, this.clock.now());
      prepared.release = [];
    }
    for (const event of prepared.events.splice(0)) this.events.emit(event);
  }

  /**
   * Ends a row that succeeded, together with what its handler still has to write (`ctx.complete`). Who else may end it?
   * A takeover, a reclaim, an admin: then the fence matches nothing, and nothing of `work` is kept. If the commit's reply
   * is lost for good the handler sees an error, and its outcome's fence tells what is true.
   */
  async complete(target: RegisteredTarget, row: JobDoc, work: (tx: Tx) => Promise<unknown>): Promise<void> {
    if (ambientTx()?.open) {
      throw new SidelaneError(
        'transaction_open',
        'ctx.complete opens its own transaction: call it outside of yours',
        'tx',
      );
    }
    const now = this.clock.now();
    const keep = target.keep_done_ms === undefined ? undefined : { now, keep_done_ms: target.keep_done_ms };
    await this.collections.inTransaction(async (tx) => {
      if ((await finishIn(tx.session, this.collections, row, keep)) === 'lost') {
        throw new ClaimLostError(`job ${row._id.toHexString()} is no longer this run's: nothing was written`);
      }
      await work(tx);
    });
    if (row.lane === JobLane.fast && row.attempts > 0)
      await releaseFollowers(this.collections, [row], this.clock.now());
  }

  /** Writes takeovers and reclaims; DEAD ones of targets with `on_dead` in a transaction each. Answers how many matched. */
  async writeJudged(
    judged: readonly { row: JobDoc; operation: UpdateOne; target: RegisteredTarget | undefined; dead: boolean }[],
  ): Promise<number> {
    const alone = judged.filter(({ target, dead }) => dead && target?.on_dead);
    const rest = judged.filter((each) => !alone.includes(each)).map(({ operation }) => operation);
    let matched = rest.length === 0 ? 0 : (await writeOutcomes(this.collections, rest)).updated;
    for (const { row, operation, target } of alone) {
      if (await this.endDead(row, operation, target!)) matched++;
    }
    return matched;
  }

  runRecord(target: RegisteredTarget | undefined, run: Pick<RunRecord, 'token' | 'now' | 'ms' | 'class'>): RunRecord {
    const { history_size } = this.config;
    return { ...run, pod: this.pod.id, history_size, keep_dead_ms: target?.keep_dead_ms };
  }

  private place(
    prepared: PreparedOutcome,
    {
      target,
      row,
      result,
      decision,
      run,
      stamped,
    }: {
      target: RegisteredTarget;
      row: JobDoc;
      result: RunResult;
      decision: RowDecision;
      run: Pick<RunRecord, 'token' | 'now' | 'ms' | 'class'>;
      stamped: JobDoc[];
    },
  ): void {
    switch (decision.do) {
      case 'nothing':
        return;
      case 'stamp':
        stamped.push(row);
        return;
      case 'postpone':
        prepared.operations.push(...postponeOperations(row, decision.next_run_at));
        prepared.rows.push(row);
        return;
      case 'complete':
        if (target.keep_done_ms === undefined) prepared.completed.push(row);
        else {
          prepared.operations.push(doneOperation(row, run.now, target.keep_done_ms));
          prepared.rows.push(row);
        }
        return;
      case 'dead': {
        const operations = failureOperations(row, decision, this.runRecord(target, run));
        const death = { row, at: run.now, event: deathOf(row, result, decision) };
        if (target.on_dead) {
          const [operation, ...unlessMatched] = operations;
          prepared.dead.push({ ...death, operation: operation as UpdateOne, unlessMatched, target });
          return;
        }
        prepared.deaths.push(death);
        prepared.operations.push(...operations);
        prepared.rows.push(row);
        return;
      }
      case 'retry':
        prepared.operations.push(...failureOperations(row, decision, this.runRecord(target, run)));
        prepared.rows.push(row);
    }
  }

  private async writeDead(
    prepared: PreparedOutcome,
    dying: PreparedOutcome['dead'][number],
    again: boolean,
  ): Promise<void> {
    const { row, operation, unlessMatched, target } = dying;
    let written: WrittenOutcomes = { updated: (await this.endDead(row, operation, target)) ? 1 : 0, deleted: 0 };
    if (written.updated === 0 && unlessMatched.length > 0) {
      written = await writeOutcomes(this.collections, unlessMatched);
    }
    if (!again) this.countLost(prepared, [row], written.updated + written.deleted);
    await this.tellEnds(prepared, { rows: [row], deaths: [dying], written, again });
  }

  /**
   * Tells of rows that went DEAD, and of those that an admin had cancelled. A bulk write does not say which of its rows
   * matched, and one whose reply was lost finds its own work done: then one look says what stands.
   */
  private async tellEnds(
    { events }: PreparedOutcome,
    {
      rows,
      deaths,
      written,
      again,
    }: { rows: readonly JobDoc[]; deaths: readonly Death[]; written: WrittenOutcomes; again: boolean },
  ): Promise<void> {
    if (!again && written.updated === rows.length) return void events.push(...deaths.map(({ event }) => event));
    if (deaths.length === 0 && written.deleted === 0) return;
    const ends = await findEnds(this.collections, rows);
    const isDead = ({ row, at }: Death): boolean => {
      const end = ends.get(row._id.toHexString());
      return end?.status === JobStatus.dead && end.closed_at?.getTime() === at.getTime();
    };
    events.push(...deaths.filter(isDead).map(({ event }) => event));
    const gone = rows.filter((row) => !ends.has(row._id.toHexString()));
    // More are gone than were deleted here: others have run to their end elsewhere, and nobody knows which.
    if (gone.length > written.deleted) return;
    events.push(...gone.map((row): JobsEvent => ({ type: 'cancelled', row: rowRef(row, row.attempts) })));
  }

  /**
   * DEAD and `on_dead` in one transaction. A fault of the hook itself must not keep the row alive for ever: the row then
   * goes DEAD without it, and the event says so. A fault of the database is thrown: the outcome is kept and written later.
   */
  private async endDead(row: JobDoc, operation: UpdateOne, target: RegisteredTarget): Promise<boolean> {
    const hook = new OnDeadHook(this.clock, target);
    for (;;) {
      try {
        return await this.collections.inTransaction(async (tx) => {
          const dead = await writeOutcomeIn(tx.session, this.collections, operation);
          if (dead) await hook.call(dead, tx);
          return dead !== undefined;
        });
      } catch (error) {
        const fault = hook.judge(error);
        if (fault === 'database') throw error;
        if (fault === 'again') continue;
        this.events.emit({ type: 'on_dead_failed', row: rowRef(row, row.attempts), error: fault.cause });
        return (await writeOutcomes(this.collections, [operation])).updated === 1;
      }
    }
  }

  private async deleteCompleted({ scope, completed }: PreparedOutcome, again: boolean): Promise<void> {
    const { target, partition } = scope;
    // Tried again it finds less than it names, which must not be counted against others in the same command. The long
    // lane's outcomes are gathered before they come here.
    if (again || partition === undefined) {
      const deleted = await deleteFinished(this.collections, completed);
      if (!again) this.countLost({ scope }, completed, deleted);
      return;
    }
    const { lost, shared } = await this.finished.delete(target, completed);
    if (lost > 0) this.events.emit({ type: 'outcome_lost', target, ...(!shared && { partition }), count: lost });
  }

  private countLost(prepared: Pick<PreparedOutcome, 'scope'>, rows: readonly JobDoc[], matched: number): void {
    const count = rows.length - matched;
    if (count <= 0) return;
    const { target, partition } = prepared.scope;
    if (partition !== undefined) this.events.emit({ type: 'outcome_lost', target, partition, count });
    // Which of several rows were lost is not in the answer of a bulk write; a single one is known.
    else
      this.events.emit({
        type: 'claim_lost',
        count,
        target,
        where: 'outcome',
        rows: rows.length === 1 ? rows.map((row) => rowRef(row, row.attempts)) : [],
      });
  }
}

export function emptyOutcome(scope: OutcomeScope): PreparedOutcome {
  return {
    scope,
    completed: [],
    operations: [],
    rows: [],
    deaths: [],
    dead: [],
    release: [],
    events: [],
    repeated: false,
  };
}

/** A head that had waited is gone: what was deferred behind it comes due. The long lane knows no order. */
function releasesFollowers(row: JobDoc, decision: RowDecision): boolean {
  if (row.lane !== JobLane.fast) return false;
  return decision.do === 'dead' || (decision.do === 'complete' && row.attempts > 0);
}

function endOf(row: JobDoc, result: RunResult, decision: RowDecision, ms: number): JobsEvent[] {
  if (result.kind === 'not_started' || result.kind === 'postponed') return [];
  return [{ type: 'run_ended', row: refOf(row, decision), result: result.kind, ms }];
}

function deathOf(row: JobDoc, result: RunResult, decision: RowDecision): JobsEvent {
  const reason = 'error' in result ? errorText(result.error) : result.kind;
  return { type: 'dead', row: refOf(row, decision), reason };
}

const refOf = (row: JobDoc, decision: RowDecision): RowRef =>
  rowRef(row, 'attempts' in decision ? decision.attempts : row.attempts);
