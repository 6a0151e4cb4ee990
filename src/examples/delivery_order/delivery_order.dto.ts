/** What the sample's HTTP API takes and gives. Types stand in the decorators, so no compiler has to emit them. */
import { ApiProperty } from '@nestjs/swagger';
import { Type } from 'class-transformer';
import { ArrayMaxSize, ArrayNotEmpty, IsArray, IsEnum, IsInt, IsString, Length } from 'class-validator';
import { Matches, Max, Min, ValidateNested } from 'class-validator';
import { Channel, DeliveryStatus } from './delivery_order.policy.js';

export class DeliveryItemDto {
  @ApiProperty({ type: String, minLength: 1, maxLength: 64, example: 'TEA-250G' })
  @IsString()
  @Length(1, 64)
  sku: string;

  @ApiProperty({ type: 'integer', minimum: 1, maximum: 10_000, example: 2 })
  @IsInt()
  @Min(1)
  @Max(10_000)
  quantity: number;
}

export class CreateDeliveryOrderDto {
  @ApiProperty({ type: String, pattern: '^[A-Za-z0-9-]{1,40}$', example: 'DO-0001' })
  @Matches(/^[A-Za-z0-9-]{1,40}$/)
  delivery_no: string;

  @ApiProperty({ enum: Channel, enumName: 'Channel' })
  @IsEnum(Channel)
  channel: Channel;

  @ApiProperty({ type: String, minLength: 1, maxLength: 200, example: 'Ada Brown' })
  @IsString()
  @Length(1, 200)
  recipient: string;

  @ApiProperty({ type: [DeliveryItemDto], minItems: 1, maxItems: 100 })
  @IsArray()
  @ArrayNotEmpty()
  @ArrayMaxSize(100)
  @ValidateNested({ each: true })
  @Type(() => DeliveryItemDto)
  items: DeliveryItemDto[];
}

export class ChangeStatusDto {
  @ApiProperty({ enum: DeliveryStatus, enumName: 'DeliveryStatus' })
  @IsEnum(DeliveryStatus)
  status: DeliveryStatus;
}

export class DeliveryOrderDto extends CreateDeliveryOrderDto {
  @ApiProperty({ enum: DeliveryStatus, enumName: 'DeliveryStatus' })
  status: DeliveryStatus;

  @ApiProperty({ type: 'integer', description: 'Grows by one with every change' })
  version: number;

  @ApiProperty({ type: Date })
  created_at: Date;

  @ApiProperty({ type: Date })
  updated_at: Date;
}
