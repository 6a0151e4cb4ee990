/**
 * Finds methods marked with `@Schedule` and declares them, before anything ticks. A declaration that cannot work fails
 * the boot with the class's and the method's name.
 */
import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { DiscoveryService, MetadataScanner } from '@nestjs/core';
import { BootError, errorText, SidelaneError } from '../common/errors.js';
import { SCHEDULE_METADATA } from './schedule.decorator.js';
import type { ScheduleHandler, ScheduleOptions } from './schedule_declaration.js';
import { SchedulesService } from './schedules.service.js';

type Provider = ReturnType<DiscoveryService['getProviders']>[number];

@Injectable()
export class SchedulesExplorer implements OnModuleInit {
  private readonly scanner = new MetadataScanner();

  constructor(
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(SchedulesService) private readonly schedules: SchedulesService,
  ) {}

  onModuleInit(): void {
    const seen = new Set<object>();
    for (const wrapper of [...this.discovery.getProviders(), ...this.discovery.getControllers()]) {
      const prototype = prototypeOf(wrapper);
      // A class provided under two tokens as one instance is one schedule; as two instances it is a duplicate.
      const identity = (wrapper.instance as object | null) ?? wrapper;
      if (!prototype || seen.has(identity)) continue;
      seen.add(identity);
      for (const method of this.scanner.getAllMethodNames(prototype)) this.explore(wrapper, prototype, method);
    }
  }

  private explore(wrapper: Provider, prototype: object, method: string): void {
    const marked = (prototype as Record<string, unknown>)[method];
    if (typeof marked !== 'function') return;
    const options = Reflect.getMetadata(SCHEDULE_METADATA, marked) as ScheduleOptions | undefined;
    if (!options) return;
    const name = `@Schedule on ${prototype.constructor.name}.${method}`;
    if (!wrapper.isDependencyTreeStatic()) {
      // One instance per request does not exist yet when a slot runs.
      const reason = 'the provider is request-scoped, a schedule needs a singleton';
      throw new BootError('invalid_schedule', `${name}: ${reason}`, 'Schedule');
    }
    const instance = wrapper.instance as Record<string, ScheduleHandler>;
    try {
      this.schedules.declare({ ...options, handler: async (run) => instance[method]!(run) });
    } catch (error) {
      const code = error instanceof SidelaneError ? error.code : 'invalid_schedule';
      throw new BootError(code, `${name}: ${errorText(error)}`, 'Schedule', { cause: error });
    }
  }
}

/** Factories and values have no class of their own; a request-scoped provider has no instance yet. */
function prototypeOf({ instance, metatype, inject }: Provider): object | undefined {
  if (instance !== null && typeof instance === 'object') return Object.getPrototypeOf(instance) as object | undefined;
  return !inject && typeof metatype === 'function' ? (metatype.prototype as object | undefined) : undefined;
}
