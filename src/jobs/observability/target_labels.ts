/**
 * The label `target`: a registered name, `unknown` for every other one, and `other` beyond the first `MOST`. So names that
 * come from rows, from other pods or from callers never make a new time series.
 */
import type { JobTargetsRegistry } from '../targets/job_targets.registry.js';

const MOST = 200;

export class TargetLabels {
  private readonly admitted = new Set<string>();

  constructor(private readonly targets: JobTargetsRegistry) {}

  of(name: string): { target: string; lane: string } {
    const target = this.targets.get(name);
    if (!target) return { target: 'unknown', lane: 'unknown' };
    const lane = target.lossy ? 'lossy' : target.lane;
    if (this.admitted.size < MOST) this.admitted.add(name);
    return { target: this.admitted.has(name) ? name : 'other', lane };
  }
}
