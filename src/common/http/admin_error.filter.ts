/**
 * Answers every error of an admin route with the one error body. Promises: what nobody foresaw is answered 500 without a
 * word of what happened inside, and logged. Never shows a stack, a query or a value of the database.
 */
import { Catch, HttpException, Inject, Logger, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { HttpAdapterHost } from '@nestjs/core';
import { CommitUnknownError, errorText, InvalidInputError } from '../errors.js';
import { isDatabaseAway } from '../utils/database_away.js';
import { AdminError, type AdminErrorBody } from './admin_error.js';

/** An answer repeats names the caller sent: never more of them than this. */
const MAX_MESSAGES = 20;
const MAX_MESSAGE_CHARS = 300;

const MAY_BE_DONE = 'the database did not say whether this was done: look before doing it again';

const AWAY = 'what this needs cannot be reached: nothing, or not all of it, was done';

const CODES: Readonly<Record<number, string>> = {
  400: 'invalid_input',
  401: 'unauthorized',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  413: 'payload_too_large',
  429: 'too_many_requests',
};

@Catch()
export class AdminErrorFilter implements ExceptionFilter {
  private readonly logger = new Logger('Sidelane');

  constructor(@Inject(HttpAdapterHost) private readonly host: HttpAdapterHost) {}

  catch(error: unknown, context: ArgumentsHost): void {
    const body = adminErrorBody(error);
    if (body.statusCode >= 500) {
      this.logger.error(`admin request failed: ${errorText(error)}`, error instanceof Error ? error.stack : undefined);
    }
    const { httpAdapter } = this.host;
    const response: unknown = context.switchToHttp().getResponse();
    if (httpAdapter.isHeadersSent(response)) return httpAdapter.end(response) as void;
    httpAdapter.reply(response, body, body.statusCode);
  }
}

export function adminErrorBody(error: unknown): AdminErrorBody {
  if (error instanceof AdminError) return bodyOf(error.getStatus(), error.code, error.messages);
  if (error instanceof InvalidInputError) return bodyOf(400, error.code, [error.message]);
  // Who is told that it failed does it again, and a second "run now" is a second run.
  if (error instanceof CommitUnknownError) return bodyOf(503, error.code, [MAY_BE_DONE]);
  if (isDatabaseAway(error)) return bodyOf(503, 'unavailable', [AWAY]);
  if (error instanceof HttpException) {
    const status = error.getStatus();
    return status >= 500 ? internal(status) : bodyOf(status, codeOf(status), messagesOf(error));
  }
  return internal(500);
}

function internal(status: number): AdminErrorBody {
  return bodyOf(status, 'internal_error', ['the request failed']);
}

function bodyOf(statusCode: number, code: string, messages: readonly string[]): AdminErrorBody {
  const message = messages.slice(0, MAX_MESSAGES).map((text) => text.slice(0, MAX_MESSAGE_CHARS).toWellFormed());
  return { statusCode, code, message };
}

function codeOf(status: number): string {
  return CODES[status] ?? 'refused';
}

/** Nest's own exceptions carry one text or a list. */
function messagesOf(error: HttpException): string[] {
  const response = error.getResponse();
  const message: unknown = typeof response === 'string' ? response : (response as { message?: unknown }).message;
  return Array.isArray(message) ? message.map(String) : [typeof message === 'string' ? message : error.message];
}
