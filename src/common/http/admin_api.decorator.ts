/** Makes a class a controller of the admin API: its path, version, guard, error body and OpenAPI description in one. */
import { applyDecorators, Controller, UseFilters, UseGuards } from '@nestjs/common';
import {
  ApiBadRequestResponse,
  ApiConflictResponse,
  ApiForbiddenResponse,
  ApiNotFoundResponse,
  ApiServiceUnavailableResponse,
  ApiTags,
} from '@nestjs/swagger';
import { AdminErrorBody } from './admin_error.js';
import { AdminErrorFilter } from './admin_error.filter.js';
import { AdminGuard } from './admin.guard.js';

/** The routes of an admin API under `path`, version 1; the host chooses the global prefix and the kind of versioning. */
export function AdminApi({ path, tag }: { path: string; tag: string }): ClassDecorator {
  return applyDecorators(
    Controller({ path, version: '1' }),
    UseGuards(AdminGuard),
    UseFilters(AdminErrorFilter),
    ApiTags(tag),
    ApiBadRequestResponse({
      type: AdminErrorBody,
      description: 'The request is not valid; nothing was read or changed',
      example: { statusCode: 400, code: 'invalid_input', message: ['limit must not be greater than 100'] },
    }),
    ApiForbiddenResponse({
      type: AdminErrorBody,
      description: 'Not an administrator, or no guard is configured',
      example: { statusCode: 403, code: 'forbidden', message: ['this needs an administrator'] },
    }),
    ApiServiceUnavailableResponse({
      type: AdminErrorBody,
      description:
        'The database cannot be reached (`unavailable`), or did not say whether it was done (`commit_unknown`)',
      example: { statusCode: 503, code: 'unavailable', message: ['what this needs cannot be reached'] },
    }),
  );
}

/** 404 of a route that names one thing. */
export function ApiUnknown(description: string): MethodDecorator {
  const example = { statusCode: 404, code: 'not_found', message: ['nothing has this name or id'] };
  return ApiNotFoundResponse({ type: AdminErrorBody, description, example });
}

/** 409 of a route that changes one thing: it is not in the state the change expects, or somebody else was faster. */
export function ApiLost(description: string, code = 'invalid_status'): MethodDecorator {
  const example = { statusCode: 409, code, message: ['it is not in the state that this expects'] };
  return ApiConflictResponse({ type: AdminErrorBody, description, example });
}
