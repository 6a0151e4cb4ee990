/** What the schedule routes take and answer. */
import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsOptional, IsString } from 'class-validator';
import { IsWholeNumber } from '../common/http/admin_fields.js';
import { ReasonDto } from '../common/http/admin_reason.dto.js';
import { MissedSlotPolicy, SkipReason } from './schedule_rules.js';

export class CronOverrideBody extends ReasonDto {
  @ApiProperty({ type: String, description: '5 fields, or 6 with seconds first', example: '0 3 * * MON-FRI' })
  @IsString()
  cron_override: string;
}

export class PreviewQuery {
  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: 100, default: 10 })
  @IsOptional()
  @IsWholeNumber(1, 100)
  count: number = 10;
}

export class LastRunBody {
  @ApiProperty({ type: Date, description: 'When it started' })
  at: Date;

  @ApiProperty({ type: 'integer', example: 1250 })
  ms: number;

  @ApiProperty({ enum: ['success', 'failure'] })
  result: string;
}

export class ScheduleBody {
  @ApiProperty({ type: String, example: '65f0c0ffee0c0ffee0c0ffee' })
  _id: string;

  @ApiProperty({ type: String, example: 'nightly_report' })
  code: string;

  @ApiProperty({ type: String, description: 'From the code', example: '0 2 * * *' })
  cron: string;

  @ApiProperty({ type: String, example: '+07:00' })
  timezone: string;

  @ApiPropertyOptional({ type: String, description: 'Set by an admin; goes before `cron`' })
  cron_override?: string;

  @ApiProperty({ type: Boolean })
  enabled: boolean;

  @ApiProperty({ enum: Object.values(MissedSlotPolicy) })
  missed_slot_policy: string;

  @ApiProperty({ type: 'integer', description: 'Runs per slot, retries included', example: 3 })
  retry_count: number;

  @ApiPropertyOptional({ type: Date })
  next_run_at?: Date;

  @ApiPropertyOptional({ type: Date, description: 'Newest slot that ran' })
  last_run_at?: Date;

  @ApiPropertyOptional({ type: LastRunBody })
  last_run?: LastRunBody;

  @ApiPropertyOptional({ type: Date, description: 'Newest slot that got no run' })
  last_skipped_at?: Date;

  @ApiPropertyOptional({ enum: Object.values(SkipReason) })
  last_skip_reason?: string;

  @ApiProperty({ type: Boolean, description: 'The answering pod does not declare it: never ticked or run from there' })
  orphaned: boolean;

  @ApiPropertyOptional({ type: String, description: 'Why its slots cannot be computed' })
  error?: string;
}

export class RunNowBody {
  @ApiProperty({ type: String, example: 'nightly_report' })
  code: string;

  @ApiProperty({ type: Date, description: 'Time of asking' })
  slot: Date;

  @ApiProperty({ type: String, description: 'Of the job that was enqueued' })
  dedupe_key: string;
}

export class PreviewBody {
  @ApiProperty({ type: String, example: 'nightly_report' })
  code: string;

  @ApiProperty({ type: String, description: 'The override, if there is one', example: '0 2 * * *' })
  cron: string;

  @ApiProperty({ type: String, example: '+07:00' })
  timezone: string;

  @ApiProperty({ type: [Date] })
  slots: Date[];
}
