/**
 * Stands in front of every admin route and asks the host's guards, all of them, in order. Promises: without a configured
 * guard nobody passes; a guard that cannot be built ends the boot, never the protection.
 */
import { Inject, Injectable, Logger, type CanActivate, type ExecutionContext } from '@nestjs/common';
import type { OnModuleInit, Type } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { isObservable, lastValueFrom } from 'rxjs';
import { BootError, errorText } from '../errors.js';
import type { ContextStore } from '../request_context.js';
import { rememberActor } from './admin_actor.js';
import { adminError } from './admin_error.js';

export interface AdminHttpConfig {
  /** Classes (resolved through Nest) or instances. None: every admin route answers 403. */
  readonly guards: readonly (Type<CanActivate> | CanActivate)[];
  readonly context: ContextStore;
}

export const ADMIN_HTTP = Symbol('sidelane.admin_http');

const NO_GUARDS =
  'admin API: no guard is configured, so every admin route answers 403. Name one in the module options: ' +
  'JobsModule.forRoot({ admin: { guards: [YourAdminGuard] } }), a Nest guard (class or instance) that lets only administrators pass.';

/** Each module with admin routes has a guard of its own; one warning is enough. */
const warned = new WeakSet<AdminHttpConfig>();

@Injectable()
export class AdminGuard implements CanActivate, OnModuleInit {
  private readonly logger = new Logger('Sidelane');
  private guards: readonly CanActivate[] = [];

  constructor(
    @Inject(ADMIN_HTTP) private readonly config: AdminHttpConfig,
    @Inject(ModuleRef) private readonly moduleRef: ModuleRef,
  ) {}

  async onModuleInit(): Promise<void> {
    this.guards = await Promise.all(this.config.guards.map((guard) => this.resolve(guard)));
    if (this.guards.length > 0 || warned.has(this.config)) return;
    warned.add(this.config);
    this.logger.warn(NO_GUARDS);
  }

  async canActivate(context: ExecutionContext): Promise<boolean> {
    if (this.guards.length === 0) throw forbidden('no admin guard is configured');
    for (const guard of this.guards) {
      const answer = await guard.canActivate(context);
      const passed = isObservable(answer) ? await lastValueFrom(answer) : answer;
      if (!passed) throw forbidden('this needs an administrator');
    }
    rememberActor(context.switchToHttp().getRequest<object>(), this.config.context.current());
    return true;
  }

  private async resolve(guard: Type<CanActivate> | CanActivate): Promise<CanActivate> {
    if (typeof guard !== 'function') return guard;
    try {
      return this.moduleRef.get<CanActivate>(guard, { strict: false });
    } catch {
      return this.create(guard); // not a provider of any module
    }
  }

  private async create(guard: Type<CanActivate>): Promise<CanActivate> {
    try {
      return await this.moduleRef.create(guard);
    } catch (cause) {
      const message = `jobs.admin.guards: ${guard.name} could not be built: ${errorText(cause)}`;
      throw new BootError('admin_guard', message, 'jobs.admin.guards', { cause });
    }
  }
}

function forbidden(message: string): Error {
  return adminError(403, 'forbidden', message);
}
