/** Declares a provider's method as a schedule: `@Schedule({ code: 'nightly_report', cron: '0 2 * * *' })`. */
import { SetMetadata } from '@nestjs/common';
import type { ScheduleOptions } from './schedule_declaration.js';

export const SCHEDULE_METADATA = Symbol('sidelane.schedule');

/** The method gets `{ slot, job, ctx }`, as a declared handler does. Faults fail the boot, with class and method. */
export const Schedule = (options: ScheduleOptions): MethodDecorator => SetMetadata(SCHEDULE_METADATA, options);
