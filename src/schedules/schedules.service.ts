/**
 * What this pod knows of schedules: `declare()` from code, and the sync of the declarations with the database at boot.
 * The sync only ever adds or updates: a schedule this pod does not know may be another version's.
 */
import { Inject, Injectable } from '@nestjs/common';
import { SidelaneError } from '../common/errors.js';
import { CLOCK, type Clock } from '../common/ports/clock.js';
import { JobsEvents } from '../jobs/jobs.events.js';
import { DeliveryMode, JobLane } from '../jobs/jobs.types.js';
import { JobTargetsRegistry } from '../jobs/targets/job_targets.registry.js';
import { parseCron } from './cron.js';
import { nextSlot } from './effective_slots.js';
import { checkDeclaration, targetOf, type DeclaredFields, type ScheduleDeclaration } from './schedule_declaration.js';
import { SCHEDULES_CONFIG, type SchedulesConfig } from './schedules.options.js';
import type { ScheduleDoc } from './schedules.schema.js';
import { findSchedule, insertSchedule, SCHEDULES_COLLECTIONS, updateDeclared } from './schedules.store.js';
import type { SchedulesCollections } from './schedules.store.js';
import { SlotRunner } from './slot_runner.js';

/** Boots of two versions at once change a row under each other; each round one of them is done. */
const SYNC_ROUNDS = 10;

@Injectable()
export class SchedulesService {
  private readonly declared = new Map<string, DeclaredFields>();
  private synced = false;

  constructor(
    @Inject(SCHEDULES_CONFIG) private readonly config: SchedulesConfig,
    @Inject(SCHEDULES_COLLECTIONS) private readonly collections: SchedulesCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(SlotRunner) private readonly runner: SlotRunner,
  ) {}

  /**
   * Declares a schedule of this pod; call it from `onModuleInit`. Throws `invalid_schedule`, `invalid_cron` or
   * `invalid_timezone` (with the field), `duplicate_schedule` for a code declared before, `declared_too_late` once the
   * application has started.
   */
  declare(declaration: ScheduleDeclaration): void {
    const declared = checkDeclaration(declaration, this.config.timezone);
    const { code, retry_count } = declared;
    if (this.declared.has(code))
      throw new SidelaneError('duplicate_schedule', `schedule ${code} is declared twice`, 'code');
    // Its row would never be made, and nobody would notice that it does not run.
    if (this.synced)
      throw new SidelaneError('declared_too_late', `schedule ${code}: declare it in onModuleInit`, 'code');
    const { handler } = declaration;
    this.targets.register({
      name: targetOf(code),
      lane: JobLane.long,
      exclusive: true,
      delivery_mode: DeliveryMode.atLeastOnce,
      max_attempts: retry_count,
      handler: (job, ctx) => this.runner.run(declared, handler, job, ctx),
    });
    this.declared.set(code, declared);
  }

  /** Codes this pod declared; it ticks and runs no others. */
  codes(): string[] {
    return [...this.declared.keys()];
  }

  has(code: string): boolean {
    return this.declared.has(code);
  }

  /** Brings the rows in line with the code. Once, when every module is initialised. */
  async sync(): Promise<void> {
    this.synced = true;
    for (const declared of this.declared.values()) await this.syncOne(declared);
  }

  private async syncOne(declared: DeclaredFields): Promise<void> {
    for (let round = 0; round < SYNC_ROUNDS; round++) {
      const now = this.clock.now();
      const row = await findSchedule(this.collections, declared.code);
      if (!row) {
        const next = parseCron(declared.cron, declared.timezone).next(now);
        if (await insertSchedule(this.collections, declared, next, now)) return;
      } else {
        const next = this.nextAfterBoot(row, declared, now);
        if (!next && !differs(row, declared)) return;
        if (await updateDeclared(this.collections, row, declared, next, now)) return;
      }
    }
    throw new SidelaneError('schedule_contended', `schedule ${declared.code}: other pods keep changing its row`);
  }

  /** A new time only where the code changed what it is computed from: slots missed while no pod ran are the tick's. */
  private nextAfterBoot(row: ScheduleDoc, declared: DeclaredFields, now: Date): Date | undefined {
    const sameZone = row.timezone === declared.timezone;
    const sameCron = row.cron_override !== undefined || row.cron === declared.cron;
    try {
      const next = nextSlot({ ...row, ...declared }, now); // also tells whether the override can still be read
      return sameZone && sameCron && row.next_run_at ? undefined : next;
    } catch (error) {
      this.events.emit({ type: 'schedule_broken', code: declared.code, error });
      return undefined;
    }
  }
}

function differs(row: ScheduleDoc, declared: DeclaredFields): boolean {
  return (Object.keys(declared) as (keyof DeclaredFields)[]).some((field) => row[field] !== declared[field]);
}
