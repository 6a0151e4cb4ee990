/** Why an admin does something, as every route that changes anything takes it; kept in the audit. */
import { ApiProperty, ApiPropertyOptional } from '@nestjs/swagger';
import { IsOptional } from 'class-validator';
import { IsPlainText } from './admin_fields.js';

const MAX_REASON_CHARS = 1_000;

export class ReasonDto {
  @ApiPropertyOptional({ type: String, maxLength: MAX_REASON_CHARS, example: 'the customer withdrew the order' })
  @IsOptional()
  @IsPlainText(MAX_REASON_CHARS)
  reason?: string;
}

export class RequiredReasonDto {
  @ApiProperty({ type: String, minLength: 1, maxLength: MAX_REASON_CHARS, example: 'broker maintenance until 18:00' })
  @IsPlainText(MAX_REASON_CHARS)
  reason: string;
}
