/**
 * `GET /health` for hosts without Terminus, and the indicator for those with it (then leave this module out: the indicator
 * comes with `JobsModule`). Not behind the admin guards: probes carry no credentials; it names targets, partitions and
 * loops, so keep it inside of the network. Always 200: a degraded engine is no reason to restart a pod.
 */
import { Controller, Get, Inject, Module, VERSION_NEUTRAL } from '@nestjs/common';
import { EngineHealth, type HealthReport } from './engine_health.js';

@Controller({ path: 'health', version: VERSION_NEUTRAL })
class JobsHealthController {
  constructor(@Inject(EngineHealth) private readonly health: EngineHealth) {}

  @Get()
  check(): HealthReport {
    return this.health.check();
  }
}

@Module({ controllers: [JobsHealthController] })
export class JobsHealthModule {}
