/**
 * Declares a provider as a target: `@JobTarget({ name: 'orders:announce', lane: 'fast' })` on a class with `handle(job,
 * ctx)`, or `handleBatch(jobs, ctx)`.
 */
import { DiscoveryService } from '@nestjs/core';
import type { BatchAnswer, Job, JobContext } from '../jobs.types.js';
import type { JobTargetOptions } from './job_targets.registry.js';

export type JobTargetDeclaration = Omit<JobTargetOptions, 'handler' | 'batch_handler'>;

/** What a decorated class offers: exactly one of the two. */
export interface JobTargetProvider {
  handle?(job: Job, context: JobContext): Promise<unknown>;
  handleBatch?(jobs: readonly Job[], context: JobContext): Promise<BatchAnswer>;
}

export const JobTargetOf = DiscoveryService.createDecorator<JobTargetDeclaration>();
export const JobTarget = (declaration: JobTargetDeclaration): ClassDecorator => JobTargetOf(declaration);
