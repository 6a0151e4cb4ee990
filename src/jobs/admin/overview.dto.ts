/** What the overview routes take and give: counts, targets, blocked keys, partitions, workers, audit. */
import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsOptional } from 'class-validator';
import { IsPlainText } from '../../common/http/admin_fields.js';
import { JOB_ID, PagingDto } from './jobs.dto.js';

const TIME = '2026-01-31T08:00:00.000Z';

export class CountDto {
  @ApiProperty({ type: 'integer', example: 12 })
  count: number;

  @ApiProperty({
    type: Boolean,
    description: 'There may be more: the count stopped at `admin.count_limit`',
    example: false,
  })
  at_least: boolean;
}

export class StatusCountsDto {
  @ApiProperty({ type: CountDto })
  PENDING: CountDto;

  @ApiProperty({ type: CountDto })
  RUNNING: CountDto;

  @ApiProperty({ type: CountDto })
  DEAD: CountDto;

  @ApiProperty({ type: CountDto })
  DONE: CountDto;
}

export class TargetCountsDto {
  @ApiProperty({ type: String, example: 'kafka:delivery-orders-retail' })
  name: string;

  @ApiProperty({ type: Boolean, description: 'This pod has the target', example: true })
  known: boolean;

  @ApiProperty({ type: StatusCountsDto })
  counts: StatusCountsDto;
}

export class StatsDto {
  @ApiProperty({ type: Date })
  at: Date;

  @ApiProperty({ type: StatusCountsDto })
  statuses: StatusCountsDto;

  @ApiProperty({ type: [TargetCountsDto] })
  targets: TargetCountsDto[];
}

export class TargetDto extends TargetCountsDto {
  @ApiPropertyOptional({ enum: ['fast', 'long'], example: 'fast' })
  lane?: string;

  @ApiPropertyOptional({ enum: ['at_most_once', 'at_least_once'], example: 'at_most_once' })
  delivery_mode?: string;

  @ApiProperty({ enum: ['open', 'paused'], example: 'paused' })
  state: 'open' | 'paused';

  @ApiPropertyOptional({ enum: ['engine', 'admin'], example: 'admin' })
  by?: 'engine' | 'admin';

  @ApiPropertyOptional({ type: String, example: 'ada' })
  actor?: string;

  @ApiPropertyOptional({ type: String, example: 'broker maintenance until 18:00' })
  reason?: string;

  @ApiPropertyOptional({ type: Date })
  since?: Date;
}

export class BlockedQueryDto extends PagingDto {
  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'kafka:delivery-orders-retail' })
  @IsOptional()
  @IsPlainText()
  target?: string;
}

export class BlockedHeadDto {
  @ApiProperty({ type: String, example: JOB_ID })
  _id: string;

  @ApiProperty({ type: String, example: 'delivery_order_changed_retail' })
  code: string;

  @ApiProperty({ type: 'integer', example: 3 })
  version: number;

  @ApiProperty({ type: 'integer', example: 2 })
  attempts: number;

  @ApiProperty({ type: 'integer', example: 0 })
  crashes: number;
}

export class BlockedKeyDto {
  @ApiProperty({ type: String, example: 'kafka:delivery-orders-retail' })
  target: string;

  @ApiProperty({ type: String, example: 'DO-0001' })
  key: string;

  @ApiProperty({ type: 'integer', example: 17 })
  partition: number;

  @ApiProperty({ type: BlockedHeadDto, description: 'The job that all others of the key wait for' })
  head: BlockedHeadDto;

  @ApiProperty({ type: Date, description: 'Nothing of the key starts before' })
  until: Date;

  @ApiProperty({ enum: ['retry', 'scheduled'], example: 'retry' })
  reason: 'retry' | 'scheduled';

  @ApiPropertyOptional({ type: String, example: '503: try again later' })
  last_error?: string;

  @ApiProperty({ type: CountDto })
  followers: CountDto;
}

export class BlockedPageDto {
  @ApiProperty({ type: [BlockedKeyDto] })
  data: BlockedKeyDto[];

  @ApiPropertyOptional({ type: String, description: 'Go on here, even after an empty page; missing at the end' })
  next_cursor?: string;
}

export class InflightDto {
  @ApiProperty({ type: String, example: 'kafka:delivery-orders-retail' })
  target: string;

  @ApiProperty({ enum: ['at_most_once', 'at_least_once'], example: 'at_most_once' })
  mode: string;

  @ApiProperty({ type: 'integer', description: 'Jobs of the batch that was marked last', example: 1 })
  jobs: number;

  @ApiProperty({ type: Date })
  at: Date;
}

export class PartitionDto {
  @ApiProperty({ type: 'integer', example: 17 })
  partition: number;

  @ApiProperty({ type: String, nullable: true, description: 'Pod', example: 'host-1:4242:1b9d6bcd' })
  owner: string | null;

  @ApiProperty({ type: Date, nullable: true })
  lease_until: Date | null;

  @ApiProperty({ type: Boolean, description: 'Owned by a pod whose lease runs', example: true })
  owned: boolean;

  @ApiProperty({ type: [InflightDto] })
  inflight: InflightDto[];
}

export class WorkerDto {
  @ApiProperty({ type: String, example: 'host-1:4242:1b9d6bcd' })
  pod_id: string;

  @ApiProperty({ type: String, example: 'host-1' })
  host: string;

  @ApiProperty({ type: String, description: 'Of Node', example: 'v20.19.0' })
  version: string;

  @ApiProperty({ type: [String], example: ['fast', 'long'] })
  lanes: string[];

  @ApiProperty({ type: Date })
  started_at: Date;

  @ApiProperty({ type: Date })
  heartbeat_at: Date;

  @ApiProperty({ type: [String], required: false, description: 'The targets it knows', example: ['orders:announce'] })
  targets?: string[];

  @ApiProperty({ type: Boolean, description: 'Its heartbeat is new enough', example: true })
  live: boolean;
}

export class AuditRowDto {
  @ApiProperty({ type: String, example: JOB_ID })
  _id: string;

  @ApiProperty({ type: Date })
  at: Date;

  @ApiProperty({ type: String, example: 'ada' })
  actor: string;

  @ApiProperty({ type: String, example: 'job.retry' })
  action: string;

  @ApiProperty({ type: String, description: 'Id, target, schedule; the filter of a bulk action', example: JOB_ID })
  subject: string;

  @ApiProperty({ type: 'integer', example: 1 })
  count: number;

  @ApiPropertyOptional({ type: String, example: 'the customer withdrew the order' })
  reason?: string;

  @ApiPropertyOptional({ type: String, description: 'The expression of an override', example: '0 3 * * MON-FRI' })
  detail?: string;
}

export class AuditPageDto {
  @ApiProperty({ type: [AuditRowDto] })
  data: AuditRowDto[];

  @ApiPropertyOptional({ type: String, description: 'Missing on the last page' })
  next_cursor?: string;
}

const NONE = { count: 0, at_least: false };
const COUNTS = {
  PENDING: { count: 12, at_least: false },
  RUNNING: NONE,
  DEAD: { count: 10_000, at_least: true },
  DONE: NONE,
};
const POD = 'host-1:4242:1b9d6bcd';
const TARGET = 'kafka:delivery-orders-retail';

export const TARGET_EXAMPLE = {
  name: TARGET,
  known: true,
  lane: 'fast',
  delivery_mode: 'at_most_once',
  state: 'paused',
  by: 'admin',
  actor: 'ada',
  reason: 'broker maintenance until 18:00',
  since: TIME,
  counts: COUNTS,
};
export const STATS_EXAMPLE = { at: TIME, statuses: COUNTS, targets: [{ name: TARGET, known: true, counts: COUNTS }] };
export const BLOCKED_EXAMPLE = {
  data: [
    {
      target: TARGET,
      key: 'DO-0001',
      partition: 17,
      head: { _id: JOB_ID, code: 'delivery_order_changed_retail', version: 3, attempts: 2, crashes: 0 },
      until: TIME,
      reason: 'retry',
      last_error: '503: try again later',
      followers: { count: 4, at_least: false },
    },
  ],
};
export const PARTITIONS_EXAMPLE = [
  {
    partition: 17,
    owner: POD,
    lease_until: TIME,
    owned: true,
    inflight: [{ target: TARGET, mode: 'at_most_once', jobs: 1, at: TIME }],
  },
];
export const WORKERS_EXAMPLE = [
  {
    pod_id: POD,
    host: 'host-1',
    version: '0.1.0',
    lanes: ['fast', 'long'],
    started_at: TIME,
    heartbeat_at: TIME,
    live: true,
  },
];
export const AUDIT_EXAMPLE = {
  data: [{ _id: JOB_ID, at: TIME, actor: 'ada', action: 'job.retry', subject: JOB_ID, count: 1, reason: 'fixed' }],
};
