/**
 * Finds the classes marked with `@JobTarget` and registers them, before the first loop starts. A declaration that
 * cannot work fails the boot with the class's name.
 */
import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService } from '@nestjs/core';
import { BootError } from '../../common/errors.js';
import { JobTargetOf, type JobTargetProvider } from './job_target.decorator.js';
import { JobTargetsRegistry } from './job_targets.registry.js';

@Injectable()
export class JobTargetsExplorer implements OnModuleInit {
  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry,
  ) {}

  onModuleInit(): void {
    for (const wrapper of this.discovery.getProviders({ metadataKey: JobTargetOf.KEY })) {
      const declaration = this.discovery.getMetadataByDecorator(JobTargetOf, wrapper);
      if (!declaration) continue;
      const fail = (reason: string): never => {
        throw new BootError('invalid_target', `@JobTarget on ${wrapper.name}: ${reason}`, 'JobTarget');
      };
      // One instance per request does not exist yet when a job runs.
      if (!wrapper.isDependencyTreeStatic()) fail('the provider is request-scoped, a target must be a singleton');
      const provider = wrapper.instance as JobTargetProvider;
      if (!provider.handle === !provider.handleBatch) fail('expected exactly one of handle() and handleBatch()');
      this.registry.register({
        ...declaration,
        ...(provider.handle && { handler: (job, context) => provider.handle!(job, context) }),
        ...(provider.handleBatch && { batch_handler: (jobs, context) => provider.handleBatch!(jobs, context) }),
      });
    }
  }
}
