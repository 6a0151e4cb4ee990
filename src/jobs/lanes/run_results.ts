import type { RunResult } from '../policy/outcome.js';
import type { JobDoc } from '../store/jobs.schema.js';

/** What became of each row of a batch. */
export type RunResults = Map<JobDoc, RunResult>;
