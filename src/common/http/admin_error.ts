/** The one body that every refused admin request is answered with: `{statusCode, code, message[]}` (reference, section 4). */
import { HttpException } from '@nestjs/common';
import { ApiProperty } from '@nestjs/swagger';

export class AdminErrorBody {
  @ApiProperty({ type: 'integer', example: 409 })
  statusCode: number;

  @ApiProperty({ type: String, description: 'Stable, for programs', example: 'invalid_status' })
  code: string;

  @ApiProperty({ type: [String], description: 'For people', example: ['the job is PENDING, expected DEAD'] })
  message: string[];
}

/** An answer other than success, with its code. Throw it from a controller or a service of an admin API. */
export class AdminError extends HttpException {
  constructor(
    status: number,
    readonly code: string,
    readonly messages: readonly string[],
  ) {
    super(messages.join('; '), status);
    this.name = 'AdminError';
  }
}

export function adminError(status: number, code: string, message: string | readonly string[]): AdminError {
  return new AdminError(status, code, typeof message === 'string' ? [message] : message);
}

/** Nothing is called by that name or id. */
export function notFound(message: string): AdminError {
  return adminError(404, 'not_found', message);
}
