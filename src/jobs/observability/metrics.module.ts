/**
 * Prometheus metrics, for hosts that import it: `MetricsModule.forRoot()` has a registry of its own and serves it at
 * `GET /metrics`; `MetricsModule.forRoot({ registry })` writes into the host's, which the host serves.
 *
 * The route is not behind the admin guards, because scrapers carry no admin's credentials. It holds names and numbers only
 * (metric_table.ts), yet belongs inside of the network.
 */
import { Controller, Get, Header, Inject, Module, VERSION_NEUTRAL, type DynamicModule } from '@nestjs/common';
import { Registry } from 'prom-client';
import { BacklogReader } from './backlog_reader.js';
import { JobsMetrics, METRICS_REGISTRY } from './jobs.metrics.js';

export interface MetricsModuleOptions {
  /** The host's registry, for instance prom-client's default one. Default: one of its own, served at `GET /metrics`. */
  registry?: Registry;
}

@Controller({ path: 'metrics', version: VERSION_NEUTRAL })
class JobsMetricsController {
  constructor(@Inject(JobsMetrics) private readonly metrics: JobsMetrics) {}

  @Get()
  @Header('Content-Type', Registry.PROMETHEUS_CONTENT_TYPE)
  @Header('Cache-Control', 'no-store')
  scrape(): Promise<string> {
    return this.metrics.text();
  }
}

@Module({})
export class MetricsModule {
  static forRoot({ registry }: MetricsModuleOptions = {}): DynamicModule {
    return {
      module: MetricsModule,
      controllers: registry ? [] : [JobsMetricsController],
      providers: [
        { provide: METRICS_REGISTRY, useFactory: () => registry ?? new Registry() },
        BacklogReader,
        JobsMetrics,
      ],
      exports: [JobsMetrics],
    };
  }
}
