/**
 * The enqueue API (reference, section 4). A row exists if and only if the transaction it was enqueued in committed
 * (invariant 1). Everything that can be wrong with the input is thrown before anything is written, with its field.
 */
import { Inject, Injectable } from '@nestjs/common';
import mongoose from 'mongoose';
import { InvalidInputError, TransactionEndedError } from '../common/errors.js';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { crashPoint } from '../common/ports/crash_points.js';
import { ID_SOURCE, type IdSource } from '../common/ports/ids.js';
import { afterCommit, ambientTx, queueOnSession, Tx, type ForeignTx } from '../common/utils/transaction.js';
import { checkEnqueueOptions, checkLossyOptions, type EnqueueOptions } from './enqueue_options.js';
import { JobsEvents } from './jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from './jobs.options.js';
import { JobStatus } from './jobs.types.js';
import { inEnqueueSpan, type TraceIds } from './observability/job_traces.js';
import { LossyCommits } from './lossy/lossy_commits.js';
import { toLossyJob } from './lossy/lossy_job.js';
import { LossyQueue } from './lossy/lossy.queue.js';
import { partitionOf } from './policy/partition.js';
import { toJsonValue } from './policy/payload.js';
import { JOBS_COLLECTIONS, type JobsCollections } from './store/collections.js';
import { bumpCounter, insertAlone, insertInTransaction } from './store/enqueue.store.js';
import type { JobDoc } from './store/jobs.schema.js';
import { JobTargetsRegistry } from './targets/job_targets.registry.js';
import { checkPayload } from './targets/payload_schema.js';
import type { JobTargetRef } from './targets/target_ref.js';

/** `target`: a name, or a reference that knows its payload's type (`defineTarget`). */
export interface EnqueueItem<Payload = unknown> extends EnqueueOptions {
  target: string | JobTargetRef<Payload>;
  payload: NoInfer<Payload>;
}

/** One item per payload type, so that a list may name several targets. */
type EnqueueItems<Payloads extends readonly unknown[]> = {
  readonly [Index in keyof Payloads]: EnqueueItem<Payloads[Index]>;
};

export interface EnqueueResult {
  /** False when a row of this `dedupe_key` exists (nothing was written), and for lossy targets, which never have one. */
  inserted: boolean;
  /** The target is lossy: the job is handed to Redis after the commit, or dropped. */
  lossy: boolean;
}

/** A transaction; `null` steps outside of the ambient one on purpose; `undefined` joins it when there is one. */
export type TxArgument = Tx | ForeignTx | null | undefined;

@Injectable()
export class SideEffectService {
  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(LossyQueue) private readonly lossyQueue: LossyQueue,
    @Inject(LossyCommits) private readonly lossyCommits: LossyCommits,
  ) {}

  async enqueue<Payload = unknown>(
    target: string | JobTargetRef<Payload>,
    payload: NoInfer<Payload>,
    options: EnqueueOptions = {},
    tx?: TxArgument,
  ): Promise<EnqueueResult> {
    const [result] = await this.enqueueAll([{ ...options, target, payload }], tx);
    return result!;
  }

  /** One write for all items. Of two items with one `dedupe_key` the first is kept. Results stand in item order. */
  async enqueueMany<Payloads extends readonly unknown[]>(
    items: EnqueueItems<Payloads>,
    tx?: TxArgument,
  ): Promise<EnqueueResult[]> {
    return this.enqueueAll(items, tx);
  }

  private enqueueAll(items: readonly EnqueueItem[], tx?: TxArgument): Promise<EnqueueResult[]> {
    const targets = items.map(({ target }) => nameOf(target));
    const request = this.config.context.current();
    return inEnqueueSpan(targets, request, (carried) => {
      // Rows of one call without a trace of its own share a new one.
      const { trace_id = this.ids.token(), traceparent } = carried;
      return this.enqueueTraced(items, { trace_id, traceparent }, tx);
    });
  }

  private async enqueueTraced(
    items: readonly EnqueueItem[],
    carried: CarriedTrace,
    tx: TxArgument,
  ): Promise<EnqueueResult[]> {
    const now = this.clock.now();
    const rows = items.map((item, index) => this.toRow(item, carried, `items[${index}]`, now));
    const transaction = openTransaction(tx);
    const isLossy = (row: JobDoc): boolean => this.targets.get(row.target)?.lossy === true;
    const lossy = firstOfEachKey(rows.filter(isLossy)).map((row) => toLossyJob(row, items[rows.indexOf(row)]!));
    // Before the first await: the transaction may have ended by the time the rows are written.
    if (transaction && lossy.length > 0) this.lossyCommits.add(transaction, lossy);
    const unique = firstOfEachKey(rows.filter((row) => !isLossy(row)));
    const given = items.flatMap(({ dedupe_key }, index) => (isLossy(rows[index]!) ? [] : (dedupe_key ?? [])));
    const inserted = unique.length === 0 ? [] : await this.write(unique, given, transaction);
    const written = new Set(unique.filter((_, index) => inserted[index]));
    this.announce([...written], transaction);
    if (!transaction) await this.lossyQueue.handOver(lossy);
    return rows.map((row) => ({ inserted: written.has(row), lossy: isLossy(row) }));
  }

  /** A number that grows in commit order per key, for `version`. Needs a transaction: outside of one order is not kept. */
  async nextVersion(key: string, tx?: Tx | ForeignTx): Promise<number> {
    const transaction = openTransaction(tx);
    if (!transaction) throw new InvalidInputError('transaction_required', 'nextVersion: expected a transaction', 'tx');
    if (typeof key !== 'string' || key === '')
      throw new InvalidInputError('invalid_key', 'nextVersion: expected a key', 'key');
    return inSession(transaction, () => bumpCounter(this.collections, key, transaction.session));
  }

  private async write(rows: JobDoc[], given: string[], tx: Tx | ForeignTx | undefined): Promise<boolean[]> {
    crashPoint('before_insert');
    const inserted = tx
      ? await inSession(tx, () => insertInTransaction(this.collections, rows, given, tx.session))
      : await insertAlone(this.collections, rows);
    crashPoint('after_insert');
    return inserted;
  }

  private announce(rows: JobDoc[], tx: Tx | ForeignTx | undefined): void {
    if (rows.length === 0) return;
    const cells = rows.map(({ target, partition, lane }) => ({ target, partition, lane }));
    const tell = (): void => this.events.emit({ type: 'enqueued', rows: cells });
    if (tx) afterCommit(tx, tell);
    else tell();
  }

  private toRow(item: EnqueueItem, carried: CarriedTrace, field: string, now: Date): JobDoc {
    const target = this.targets.require(nameOf(item.target), `${field}.target`);
    const { target: _target, payload: rawPayload, ...options } = item;
    checkEnqueueOptions(options, field);
    if (target.lossy) checkLossyOptions(options, field);
    const payload = toJsonValue(rawPayload, `${field}.payload`);
    if (target.schema) checkPayload(target.name, target.schema, payload, `${field}.payload`);
    const context = this.config.context.current();
    const dedupe_key = options.dedupe_key ?? this.ids.sortable();
    const order_key = options.key ?? dedupe_key;
    const run_at = options.run_at ?? new Date(now.getTime() + (options.delay_ms ?? 0));
    const row: JobDoc = {
      _id: new mongoose.Types.ObjectId(),
      code: options.code ?? target.name,
      target: target.name,
      lane: target.lane,
      ...(options.key !== undefined && { key: options.key }),
      order_key,
      partition: partitionOf(order_key, this.config.partitions),
      version: options.version ?? 0,
      payload,
      dedupe_key,
      ...(options.dedupe_key === undefined && { generated_key: true }),
      status: JobStatus.pending,
      attempts: 0,
      crashes: 0,
      priority: options.priority ?? 2,
      run_at,
      next_run_at: run_at > now ? run_at : now,
      trace_id: carried.trace_id,
      ...(carried.traceparent && { traceparent: carried.traceparent }),
      ...(context?.actor && { actor: context.actor }),
      ...(options.headers && { headers: options.headers }),
      bytes: 0,
      created_at: now,
      updated_at: now,
    };
    row.bytes = rowBytes(row, this.config.max_payload_bytes);
    if (row.bytes > this.config.max_payload_bytes) {
      const message = `${field}.payload: the row has ${row.bytes} bytes, at most ${this.config.max_payload_bytes} are allowed`;
      throw new InvalidInputError('payload_too_large', message, `${field}.payload`);
    }
    return row;
  }
}

/** What the rows of one call carry of their trace. */
interface CarriedTrace extends TraceIds {
  readonly trace_id: string;
}

/** Names, dates and numbers of a row, with room for its longest identifiers; whatever else is in it is measured. */
const PLAIN_BYTES = 1_500;

/**
 * Size of a row in bytes of BSON: what is of any length in it is measured, the rest is taken as a constant, because
 * walking every row once more just for its size costs as much as writing it. Near the limit it is measured exactly.
 */
function rowBytes(row: JobDoc, limit: number): number {
  const { payload, headers, actor } = row;
  const roughly = PLAIN_BYTES + mongoose.mongo.BSON.calculateObjectSize({ payload, headers, actor });
  return roughly > limit ? mongoose.mongo.BSON.calculateObjectSize(row) : roughly;
}

function nameOf(target: string | JobTargetRef): string {
  return typeof target === 'object' && target !== null ? target.name : target;
}

function openTransaction(tx: TxArgument): Tx | ForeignTx | undefined {
  if (tx === null) return undefined;
  const chosen = tx ?? ambientTx();
  if (chosen instanceof Tx) chosen.assertOpen();
  else if (chosen && !chosen.session.inTransaction()) throw new TransactionEndedError();
  return chosen;
}

/** A write that failed is missing from the transaction, so it must not commit, even if the caller swallows the error. */
async function inSession<T>(tx: Tx | ForeignTx, operation: () => Promise<T>): Promise<T> {
  try {
    return await queueOnSession(tx.session, operation);
  } catch (error) {
    if (tx instanceof Tx) tx.failWith(error);
    throw error;
  }
}

function firstOfEachKey(rows: readonly JobDoc[]): JobDoc[] {
  const seen = new Map<string, JobDoc>();
  for (const row of rows) if (!seen.has(row.dedupe_key)) seen.set(row.dedupe_key, row);
  return [...seen.values()];
}
