/** Who acts: what the host's guard left on the request, else what the request context says. Kept per request by `AdminGuard`. */
import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { RequestContext } from '../request_context.js';

const MAX_ACTOR_CHARS = 200;
export const UNKNOWN_ACTOR = 'unknown';

const actors = new WeakMap<object, string>();

export function rememberActor(request: object, context: RequestContext | undefined): void {
  actors.set(request, actorName((request as { user?: unknown }).user, context));
}

/** Name of the acting admin, for the audit. Only on routes behind `AdminGuard`. */
export const AdminActor = createParamDecorator(
  (_: unknown, context: ExecutionContext): string => actors.get(context.switchToHttp().getRequest()) ?? UNKNOWN_ACTOR,
);

export function actorName(user: unknown, context: RequestContext | undefined): string {
  const name = firstName(user, ['id', 'sub', 'username', 'name']) ?? firstName(context?.actor, ['id', 'name']);
  return name?.slice(0, MAX_ACTOR_CHARS).toWellFormed() ?? UNKNOWN_ACTOR;
}

function firstName(source: unknown, fields: readonly string[]): string | undefined {
  if (typeof source !== 'object' || source === null) return undefined;
  for (const field of fields) {
    const text = nameText((source as Record<string, unknown>)[field]);
    if (text !== undefined) return text;
  }
  return undefined;
}

function nameText(value: unknown): string | undefined {
  if (typeof value === 'string') return value === '' ? undefined : value;
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  // The id of a host's document.
  if (typeof value === 'object' && value !== null && 'toHexString' in value) {
    return (value as { toHexString(): string }).toHexString();
  }
  return undefined;
}
