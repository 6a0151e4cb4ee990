/**
 * Collects the lossy jobs of one transaction and hands them over in one go after its commit, so that a commit waits for
 * Redis once, however often it enqueued. Jobs of an attempt that did not commit are never handed over (invariant 1).
 */
import { Inject, Injectable } from '@nestjs/common';
import type { ClientSession } from 'mongoose';
import { afterCommit, hookIsPending, type ForeignTx, type Tx } from '../../common/utils/transaction.js';
import type { LossyJob } from './lossy_job.js';
import { LossyQueue } from './lossy.queue.js';

interface Commit {
  readonly jobs: LossyJob[];
  readonly hook: () => Promise<void>;
}

@Injectable()
export class LossyCommits {
  private readonly commits = new WeakMap<ClientSession, Commit>();

  constructor(@Inject(LossyQueue) private readonly queue: LossyQueue) {}

  add(tx: Tx | ForeignTx, jobs: readonly LossyJob[]): void {
    const known = this.commits.get(tx.session);
    // A session outlives its transactions: what was collected for an aborted attempt died with that attempt's hooks.
    if (known && hookIsPending(tx, known.hook)) known.jobs.push(...jobs);
    else this.begin(tx, [...jobs]);
  }

  private begin(tx: Tx | ForeignTx, jobs: LossyJob[]): void {
    const hook = (): Promise<void> => this.queue.handOver(jobs);
    afterCommit(tx, hook);
    this.commits.set(tx.session, { jobs, hook });
  }
}
