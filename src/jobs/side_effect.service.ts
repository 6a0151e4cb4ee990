/**
 * The enqueue API (reference, section 4). A row exists if and only if the transaction it was enqueued in committed
 * (invariant 1). Everything that can be wrong with the input is thrown before anything is written, with its field.
 */
import { Inject, Injectable } from '@nestjs/common';
import { InvalidInputError, TransactionEndedError } from '../common/errors.js';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { crashPoint } from '../common/ports/crash_points.js';
import { ID_SOURCE, type IdSource } from '../common/ports/ids.js';
import {
  afterCommit,
  ambientTx,
  outsideTransaction,
  queueInTransaction,
  Tx,
  type ForeignTx,
} from '../common/utils/transaction.js';
import type { EnqueueOptions } from './enqueue_options.js';
import { toRow, type CallFacts } from './enqueue_row.js';
import { JobsEvents } from './jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from './jobs.options.js';
import { inEnqueueSpan, type TraceIds } from './observability/job_traces.js';
import { LossyCommits } from './lossy/lossy_commits.js';
import { toLossyJob } from './lossy/lossy_job.js';
import { LossyQueue } from './lossy/lossy.queue.js';
import { KnownKeys } from './policy/known_keys.js';
import { JOBS_COLLECTIONS, type JobsCollections } from './store/collections.js';
import { bumpCounter, insertAlone, insertInTransaction } from './store/enqueue.store.js';
import type { JobDoc } from './store/jobs.schema.js';
import { JobTargetsRegistry, type RegisteredTarget } from './targets/job_targets.registry.js';
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
  private readonly knownKeys = new KnownKeys();

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
    carried: TraceIds & { trace_id: string },
    tx: TxArgument,
  ): Promise<EnqueueResult[]> {
    const made = this.makeRows(items, carried);
    const transaction = openTransaction(tx);
    const lossy = firstOfEachKey(made.filter(isLossy)).map(({ row, item }) => toLossyJob(row, item));
    // Before the first await: the transaction may have ended when the write's answer comes.
    if (transaction && lossy.length > 0) this.lossyCommits.add(transaction, lossy);
    const unique = firstOfEachKey(lossy.length > 0 ? made.filter((one) => !isLossy(one)) : made).map(({ row }) => row);
    const written: JobDoc[] = [];
    if (unique.length > 0) {
      // So is this: nobody may have awaited the write, but its transaction waits for it.
      if (transaction) afterCommit(transaction, () => this.announce(written));
      const inserted = await this.write(unique, transaction);
      written.push(...unique.filter((_, index) => inserted[index]));
      if (!transaction) outsideTransaction(() => this.announce(written));
    }
    if (!transaction && lossy.length > 0) await this.lossyQueue.handOver(lossy);
    const kept = new Set(written);
    return made.map((one) => ({ inserted: kept.has(one.row), lossy: isLossy(one) }));
  }

  private makeRows(items: readonly EnqueueItem[], carried: TraceIds & { trace_id: string }): Made[] {
    const { partitions, max_payload_bytes, context } = this.config;
    const facts: CallFacts = {
      now: this.clock.now(),
      partitions,
      max_payload_bytes,
      trace_id: carried.trace_id,
      traceparent: carried.traceparent,
      actor: context.current()?.actor,
      sortable: () => this.ids.sortable(),
    };
    return items.map((item, index) => {
      const target = this.targets.require(nameOf(item.target), `items[${index}].target`);
      return { item, target, row: toRow(target, item, facts, `items[${index}]`) };
    });
  }

  /** A number that grows in commit order per key, for `version`. Needs a transaction: outside of one order is not kept. */
  async nextVersion(key: string, tx?: Tx | ForeignTx): Promise<number> {
    const transaction = openTransaction(tx);
    if (!transaction) throw new InvalidInputError('transaction_required', 'nextVersion: expected a transaction', 'tx');
    if (typeof key !== 'string' || key === '')
      throw new InvalidInputError('invalid_key', 'nextVersion: expected a key', 'key');
    return inSession(transaction, () => bumpCounter(this.collections, key, transaction.session));
  }

  private async write(rows: JobDoc[], tx: Tx | ForeignTx | undefined): Promise<boolean[]> {
    crashPoint('before_insert');
    const inserted = tx ? await this.writeIn(tx, rows) : await insertAlone(this.collections, rows);
    crashPoint('after_insert');
    return inserted;
  }

  private async writeIn(tx: Tx | ForeignTx, rows: JobDoc[]): Promise<boolean[]> {
    const given = rows.filter((row) => !row.generated_key);
    const keys = given.map((row) => row.dedupe_key);
    const targets = new Set(given.map((row) => row.target));
    // Nobody may run a foreign transaction again. An attempt that runs again must not be lost for the same reason, and tells
    // by its look that a known key was met.
    const look = !(tx instanceof Tx) || tx.again || this.knownKeys.expected(targets);
    const inserted = await inSession(tx, () => insertInTransaction(this.collections, rows, keys, tx.session, look));
    if (inserted.includes(false)) this.knownKeys.met(targets);
    else if (rows.length > 1) this.knownKeys.metNone(targets);
    return inserted;
  }

  private announce(rows: readonly JobDoc[]): void {
    if (rows.length === 0) return;
    const cells = rows.map(({ target, partition, lane }) => ({ target, partition, lane }));
    this.events.emit({ type: 'enqueued', rows: cells });
  }
}

/** An item and the row it became. */
interface Made {
  readonly item: EnqueueItem;
  readonly target: RegisteredTarget;
  readonly row: JobDoc;
}

const isLossy = ({ target }: Made): boolean => target.lossy === true;

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
    return await queueInTransaction(tx, operation);
  } catch (error) {
    if (tx instanceof Tx) tx.failWith(error);
    throw error;
  }
}

function firstOfEachKey(made: readonly Made[]): readonly Made[] {
  if (made.length < 2) return made;
  const seen = new Map<string, Made>();
  for (const one of made) if (!seen.has(one.row.dedupe_key)) seen.set(one.row.dedupe_key, one);
  return [...seen.values()];
}
