/** Pods with schedules: each declares what the test says, on one clock, and ticks when told. */
import type { Provider } from '@nestjs/common';
import type { Clock } from '../../src/common/ports/clock.js';
import type { JobsModuleOptions } from '../../src/jobs/jobs.options.js';
import type { ScheduleDeclaration, SlotRun } from '../../src/schedules/schedule_declaration.js';
import { SchedulesModule } from '../../src/schedules/schedules.module.js';
import { SchedulesAdmin } from '../../src/schedules/schedules_admin.service.js';
import type { SchedulesModuleOptions } from '../../src/schedules/schedules.options.js';
import type { ScheduleDoc } from '../../src/schedules/schedules.schema.js';
import { SchedulesService } from '../../src/schedules/schedules.service.js';
import { SCHEDULES_COLLECTIONS, type SchedulesCollections } from '../../src/schedules/schedules.store.js';
import { SchedulesTick } from '../../src/schedules/schedules_tick.js';
import type { TestDatabase, TestPod } from './pod.js';

export interface SchedulePod {
  readonly pod: TestPod;
  readonly tick: SchedulesTick;
  readonly admin: SchedulesAdmin;
  readonly service: SchedulesService;
  readonly collections: SchedulesCollections;
  row(code: string): Promise<ScheduleDoc>;
}

export interface SchedulePodOptions {
  clock: Clock;
  declare?: readonly ScheduleDeclaration[];
  providers?: Provider[];
  jobs?: JobsModuleOptions;
  schedules?: SchedulesModuleOptions;
}

/** Declares like a business module would, before anything is synced. */
export const declares = (declarations: readonly ScheduleDeclaration[]): Provider => ({
  provide: Symbol('declarations'),
  useFactory: (schedules: SchedulesService) => declarations.forEach((each) => schedules.declare(each)),
  inject: [SchedulesService],
});

export async function schedulePod(db: TestDatabase, options: SchedulePodOptions): Promise<SchedulePod> {
  const { clock, declare = [], providers = [], jobs = {}, schedules = {} } = options;
  const pod = await db.pod(jobs, [], clock, {
    imports: [SchedulesModule.forRoot(schedules)],
    providers: [declares(declare), ...providers],
  });
  const collections = pod.module.get<SchedulesCollections>(SCHEDULES_COLLECTIONS);
  return {
    pod,
    tick: pod.module.get(SchedulesTick),
    admin: pod.module.get(SchedulesAdmin),
    service: pod.module.get(SchedulesService),
    collections,
    row: async (code) => (await collections.schedules.findOne({ code }))!,
  };
}

/** A handler that remembers its slots, and does what the test says. */
export class Slots {
  readonly runs: SlotRun[] = [];
  work: (run: SlotRun) => unknown = () => undefined;

  declaration(code: string, cron: string, more: Partial<ScheduleDeclaration> = {}): ScheduleDeclaration {
    const handler = async (run: SlotRun): Promise<void> => {
      this.runs.push(run);
      await this.work(run);
    };
    return { code, cron, handler, timezone: 'UTC', ...more };
  }

  get times(): string[] {
    return this.runs.map(({ slot }) => slot.toISOString().slice(11, 19));
  }
}
