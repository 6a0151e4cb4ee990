/**
 * The engine's health in the shape that `@nestjs/terminus` 12 takes from an indicator: `() => indicator.check()` beside
 * others in `HealthCheckService.check([...])`. Terminus is not imported, so a host need not have it. `degraded` keeps the
 * overall answer at 200; it is never `down` (see engine_health.ts).
 */
import { Inject, Injectable } from '@nestjs/common';
import { EngineHealth, type HealthReport } from './engine_health.js';

export type JobsHealthResult<Key extends string> = Record<
  Key,
  { status: HealthReport['status'] } & HealthReport['details']
>;

@Injectable()
export class JobsHealthIndicator {
  constructor(@Inject(EngineHealth) private readonly health: EngineHealth) {}

  check<const Key extends string = 'jobs'>(key?: Key): JobsHealthResult<Key> {
    const { status, details } = this.health.check();
    return { [key ?? 'jobs']: { status, ...details } } as JobsHealthResult<Key>;
  }
}
