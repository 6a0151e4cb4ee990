/**
 * Masks what a target's `redact` paths name. Pure; the payload itself stays as it is. A path names properties from the
 * payload down, `*` any one level; lists are looked through, so `items.secret` means the secret of every item.
 */
import type { JsonValue } from '../jobs.types.js';

export const REDACTED = '[redacted]';

export function redact(payload: JsonValue, paths: readonly string[]): JsonValue {
  return paths.reduce<JsonValue>((value, path) => mask(value, path.split('.')), payload);
}

function mask(value: JsonValue, [name, ...rest]: readonly string[]): JsonValue {
  if (name === undefined) return REDACTED;
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    // A list at the end of a path is masked whole by its owner, so here the path goes on into the items.
    return value.map((item, index) => {
      if (name === '*' || name === String(index)) return mask(item, rest);
      return mask(item, [name, ...rest]);
    });
  }
  const entries = Object.entries(value).map(([own, inner]): [string, JsonValue] => [
    own,
    name === '*' || name === own ? mask(inner, rest) : inner,
  ]);
  return Object.fromEntries(entries);
}
