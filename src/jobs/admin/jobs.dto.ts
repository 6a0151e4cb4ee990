/** What the routes of one job and of the list take and give. */
import { ApiProperty, ApiPropertyOptional, OmitType } from '@nestjs/swagger';
import { IsIn, IsOptional } from 'class-validator';
import { IsPlainText, IsWholeNumber } from '../../common/http/admin_fields.js';
import { JobLane, JobStatus } from '../jobs.types.js';
import { MAX_CURSOR_CHARS } from './cursor.js';

export const JOB_ID = '65f1c0ffee65f1c0ffee65f1';
const STATUSES = Object.values(JobStatus);

export class PagingDto {
  @ApiPropertyOptional({
    type: String,
    description: 'The `next_cursor` of an earlier answer',
    example: 'ZfHA_-5l8cD_7mXx',
  })
  @IsOptional()
  @IsPlainText(MAX_CURSOR_CHARS)
  cursor?: string;

  @ApiPropertyOptional({ type: 'integer', minimum: 1, maximum: 100, default: 100, example: 20 })
  @IsWholeNumber(1, 100)
  limit: number = 100;
}

export class JobsQueryDto extends PagingDto {
  @ApiPropertyOptional({ enum: STATUSES, enumName: 'JobStatus', example: 'DEAD' })
  @IsOptional()
  @IsIn(STATUSES)
  status?: JobStatus;

  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'kafka:delivery-orders-retail' })
  @IsOptional()
  @IsPlainText()
  target?: string;

  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'delivery_order_changed_retail' })
  @IsOptional()
  @IsPlainText()
  code?: string;

  @ApiPropertyOptional({ type: String, maxLength: 500, description: 'Ordering key', example: 'DO-0001' })
  @IsOptional()
  @IsPlainText()
  key?: string;

  @ApiPropertyOptional({
    type: 'integer',
    minimum: 1,
    maximum: 10_000,
    default: 1,
    description: 'Instead of `cursor`',
    example: 1,
  })
  @IsOptional()
  @IsWholeNumber(1, 10_000)
  page?: number;
}

export class HistoryDto {
  @ApiProperty({ type: Date })
  at: Date;

  @ApiProperty({ type: String, example: 'host-1:4242:1b9d6bcd' })
  pod: string;

  @ApiProperty({ type: 'integer', example: 120 })
  ms: number;

  @ApiProperty({ type: String, description: 'How the run ended', example: 'answered' })
  class: string;

  @ApiPropertyOptional({ type: String, maxLength: 500, example: '422: unknown recipient' })
  error?: string;
}

export class ProgressDto {
  @ApiProperty({ type: Number, minimum: 0, maximum: 100, example: 40 })
  percent: number;

  @ApiPropertyOptional({ type: String, example: 'page 4 of 10' })
  note?: string;

  @ApiProperty({ type: Date })
  at: Date;
}

export class CancelRequestDto {
  @ApiProperty({ type: Date })
  at: Date;

  @ApiProperty({ type: String, example: 'ada' })
  by: string;

  @ApiProperty({ type: String, example: 'started by mistake' })
  reason: string;
}

export class JobDetailDto {
  @ApiProperty({ type: String, example: JOB_ID })
  _id: string;

  @ApiProperty({ type: String, example: 'delivery_order_changed_retail' })
  code: string;

  @ApiProperty({ type: String, example: 'kafka:delivery-orders-retail' })
  target: string;

  @ApiProperty({ enum: Object.values(JobLane), enumName: 'JobLane', example: 'fast' })
  lane: JobLane;

  @ApiPropertyOptional({ type: String, example: 'DO-0001' })
  key?: string;

  @ApiProperty({ type: String, example: 'DO-0001' })
  order_key: string;

  @ApiProperty({ type: 'integer', example: 17 })
  partition: number;

  @ApiProperty({ type: 'integer', example: 3 })
  version: number;

  @ApiProperty({
    type: 'object',
    additionalProperties: true,
    description: 'Any JSON value; what the target calls secret is masked',
    example: { delivery_no: 'DO-0001' },
  })
  payload: unknown;

  @ApiProperty({ type: String, example: 'delivery_order_changed_retail:DO-0001:3' })
  dedupe_key: string;

  @ApiPropertyOptional({ type: Boolean, description: 'The `dedupe_key` was made up: nobody gave one', example: true })
  generated_key?: boolean;

  @ApiProperty({ enum: STATUSES, enumName: 'JobStatus', example: 'DEAD' })
  status: JobStatus;

  @ApiProperty({ type: 'integer', example: 6 })
  attempts: number;

  @ApiProperty({ type: 'integer', description: 'Runs that ended with their pod', example: 0 })
  crashes: number;

  @ApiProperty({ enum: [1, 2, 3], example: 2 })
  priority: number;

  @ApiProperty({ type: Date })
  run_at: Date;

  @ApiProperty({ type: Date })
  next_run_at: Date;

  @ApiPropertyOptional({ type: String, maxLength: 2000, example: '422: unknown recipient' })
  last_error?: string;

  @ApiPropertyOptional({ type: String, description: 'Pod that runs it (long lane)', example: 'host-1:4242:1b9d6bcd' })
  claimed_by?: string;

  @ApiPropertyOptional({ type: Date })
  lease_until?: Date;

  @ApiPropertyOptional({ type: ProgressDto })
  progress?: ProgressDto;

  @ApiPropertyOptional({ type: CancelRequestDto })
  cancel_requested?: CancelRequestDto;

  @ApiPropertyOptional({ type: Date, description: 'When an admin last brought it back from DEAD' })
  retried_at?: Date;

  @ApiPropertyOptional({ type: Date, description: 'When it went DEAD or DONE' })
  closed_at?: Date;

  @ApiPropertyOptional({ type: Date })
  expire_at?: Date;

  @ApiPropertyOptional({ type: String, example: '4bf92f3577b34da6a3ce929d0e0e4736' })
  trace_id?: string;

  @ApiPropertyOptional({ type: 'object', additionalProperties: true, example: { id: 'ada' } })
  actor?: Record<string, unknown>;

  @ApiPropertyOptional({ type: 'object', additionalProperties: { type: 'string' }, example: { event_id: 'e-1' } })
  headers?: Record<string, string>;

  @ApiPropertyOptional({ type: [HistoryDto], description: 'The last runs that did not succeed' })
  history?: HistoryDto[];

  @ApiProperty({ type: Date })
  created_at: Date;

  @ApiProperty({ type: Date })
  updated_at: Date;
}

export class JobDto extends OmitType(JobDetailDto, ['payload', 'history'] as const) {}

export class JobPageDto {
  @ApiProperty({ type: [JobDto] })
  data: JobDto[];

  @ApiProperty({ type: 'integer', description: 'Rows that match, as far as they were counted', example: 1 })
  total: number;

  @ApiProperty({ type: Boolean, description: 'There may be more than `total`', example: false })
  total_at_least: boolean;

  @ApiProperty({ type: 'integer', example: 1 })
  page: number;

  @ApiProperty({ type: 'integer', example: 100 })
  limit: number;

  @ApiPropertyOptional({
    type: String,
    description: 'Missing on the last page. A page may be short, or empty, and still have one',
    example: 'ZfHA_-5l8cD_7mXx',
  })
  next_cursor?: string;
}

const TIME = '2026-01-31T08:00:00.000Z';

export const JOB_EXAMPLE = {
  _id: JOB_ID,
  code: 'delivery_order_changed_retail',
  target: 'kafka:delivery-orders-retail',
  lane: 'fast',
  key: 'DO-0001',
  order_key: 'DO-0001',
  partition: 17,
  version: 3,
  dedupe_key: 'delivery_order_changed_retail:DO-0001:3',
  status: 'DEAD',
  attempts: 6,
  crashes: 0,
  priority: 2,
  run_at: TIME,
  next_run_at: TIME,
  last_error: '422: unknown recipient',
  closed_at: TIME,
  created_at: TIME,
  updated_at: TIME,
};
