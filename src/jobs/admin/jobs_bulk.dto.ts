/** What the bulk routes take and give. */
import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { Type } from 'class-transformer';
import { ArrayMaxSize, ArrayNotEmpty, IsArray, IsBoolean, IsIn, IsInt, IsObject } from 'class-validator';
import { IsOptional, Matches, Max, Min, ValidateNested } from 'class-validator';
import { IsPlainText, IsTime } from '../../common/http/admin_fields.js';
import { ReasonDto } from '../../common/http/admin_reason.dto.js';
import { JOB_ID } from './jobs.dto.js';

/** Ids of one call. */
const MAX_IDS = 1_000;

export class BulkFilterDto {
  @ApiPropertyOptional({ enum: ['DEAD'], description: 'Bulk actions touch DEAD jobs only', example: 'DEAD' })
  @IsOptional()
  @IsIn(['DEAD'])
  status?: 'DEAD';

  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'kafka:delivery-orders-retail' })
  @IsOptional()
  @IsPlainText()
  target?: string;

  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'delivery_order_changed_retail' })
  @IsOptional()
  @IsPlainText()
  code?: string;

  @ApiPropertyOptional({ type: String, maxLength: 500, example: 'DO-0001' })
  @IsOptional()
  @IsPlainText()
  key?: string;

  @ApiPropertyOptional({ type: [String], minItems: 1, maxItems: MAX_IDS, example: [JOB_ID] })
  @IsOptional()
  @IsArray()
  @ArrayNotEmpty()
  @ArrayMaxSize(MAX_IDS)
  @Matches(/^[0-9a-f]{24}$/i, { each: true })
  ids?: string[];

  @ApiPropertyOptional({ type: Date, description: 'Went DEAD at or after', example: '2026-01-31T08:00:00Z' })
  @IsOptional()
  @IsTime()
  from?: Date;

  @ApiPropertyOptional({ type: Date, description: 'Went DEAD before', example: '2026-01-31T09:00:00Z' })
  @IsOptional()
  @IsTime()
  to?: Date;
}

export class BulkDto extends ReasonDto {
  @ApiProperty({ type: BulkFilterDto, description: 'Names at least one of target, code, key and ids' })
  @IsObject()
  @ValidateNested()
  @Type(() => BulkFilterDto)
  filter: BulkFilterDto;

  @ApiPropertyOptional({
    type: 'integer',
    minimum: 1,
    description: 'Most jobs to change; default: `admin.bulk_limit`',
    example: 500,
  })
  @IsOptional()
  @IsInt()
  @Min(1)
  @Max(1_000_000)
  limit?: number;

  @ApiPropertyOptional({ type: Boolean, description: 'Counts and changes nothing', example: true })
  @IsOptional()
  @IsBoolean()
  dry_run?: boolean;
}

export class BulkAnswerDto {
  @ApiProperty({ type: 'integer', example: 500 })
  changed: number;

  @ApiProperty({ type: 'integer', description: 'Jobs that match now: call again until none are left', example: 1200 })
  remaining: number;

  @ApiProperty({ type: Boolean, description: 'There are more than `remaining`', example: false })
  remaining_at_least: boolean;

  @ApiProperty({ type: Boolean, example: false })
  dry_run: boolean;
}
