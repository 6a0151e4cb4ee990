/**
 * Turns a payload into the JSON value that is stored: what `JSON.stringify` would send, or an error with the path of
 * what cannot be sent. Nothing changes silently on the way: what BSON or JSON would drop, bend or choke on is refused.
 */
import { InvalidInputError } from '../../common/errors.js';
import type { JsonValue } from '../jobs.types.js';

/** BSON servers refuse deeper documents; the payload itself sits one level down. */
const MAX_DEPTH = 90;

export function toJsonValue(payload: unknown, field: string): JsonValue {
  const value = convert(payload, field, '', new Set());
  if (value === undefined) throw invalid(field, `expected a JSON value, got ${typeof payload}`);
  return value;
}

function convert(raw: unknown, path: string, key: string, parents: Set<object>): JsonValue | undefined {
  const value = unwrap(raw, path, key);
  switch (typeof value) {
    case 'undefined':
      return undefined;
    case 'string':
      if (!value.isWellFormed()) throw invalid(path, 'a string with half a surrogate pair changes on the way');
      return value;
    case 'boolean':
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw invalid(path, `${value} has no JSON form`);
      return Object.is(value, -0) ? 0 : value;
    case 'object':
      return value === null ? null : container(value, path, parents);
    default:
      throw invalid(path, `a ${typeof value} has no JSON form`);
  }
}

/** `toJSON` is honoured as `JSON.stringify` does it; boxed primitives are opened. */
function unwrap(raw: unknown, path: string, key: string): unknown {
  if (raw instanceof Date && Number.isNaN(raw.getTime())) throw invalid(path, 'an invalid Date has no JSON form');
  const toJson = (raw as { toJSON?: unknown } | null | undefined)?.toJSON;
  const value: unknown = typeof toJson === 'function' ? toJson.call(raw, key) : raw;
  if (value instanceof String || value instanceof Number || value instanceof Boolean) return value.valueOf();
  return value;
}

function container(value: object, path: string, parents: Set<object>): JsonValue {
  if (parents.has(value)) throw invalid(path, 'the value contains itself');
  if (parents.size >= MAX_DEPTH) throw invalid(path, `nested deeper than ${MAX_DEPTH} levels`);
  if (value instanceof Map || value instanceof Set) {
    throw invalid(path, `a ${value.constructor.name} would be sent as {}: convert it to an object or a list`);
  }
  parents.add(value);
  try {
    return Array.isArray(value) ? list(value, path, parents) : object(value, path, parents);
  } finally {
    parents.delete(value);
  }
}

function list(value: readonly unknown[], path: string, parents: Set<object>): JsonValue[] {
  return Array.from(value, (item, index) => convert(item, `${path}[${index}]`, String(index), parents) ?? null);
}

function object(value: object, path: string, parents: Set<object>): { [key: string]: JsonValue } {
  const result: { [key: string]: JsonValue } = {};
  for (const [key, item] of Object.entries(value)) {
    if (key === '_bsontype' || key === '__proto__') throw invalid(`${path}.${key}`, 'this name cannot be stored');
    if (key.includes('\0') || !key.isWellFormed())
      throw invalid(path, `the name ${JSON.stringify(key)} cannot be stored`);
    const converted = convert(item, `${path}.${key}`, key, parents);
    if (converted !== undefined) result[key] = converted;
  }
  return result;
}

function invalid(path: string, reason: string): InvalidInputError {
  return new InvalidInputError('invalid_payload', `${path}: ${reason}`, path);
}
