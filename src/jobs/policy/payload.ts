/**
 * Turns a payload into the JSON value that is stored: what `JSON.stringify` would send, or an error with the path of
 * what cannot be sent. Nothing changes silently on the way: what BSON or JSON would drop, bend or choke on is refused.
 */
import { InvalidInputError } from '../../common/errors.js';
import type { JsonValue } from '../jobs.types.js';

/** BSON servers refuse deeper documents; the payload itself sits one level down. */
const MAX_DEPTH = 90;

export function toJsonValue(payload: unknown, field: string): JsonValue {
  const root = { step: field };
  const value = convert(payload, root, '', new Set());
  if (value === undefined) throw invalid(root, `expected a JSON value, got ${typeof payload}`);
  return value;
}

/** Where a value stands. Worded only for an error: text per value would cost more than the rest of the walk. */
interface Place {
  readonly up?: Place;
  readonly step: string | number;
}

function convert(raw: unknown, at: Place, key: string | number, parents: Set<object>): JsonValue | undefined {
  const value = unwrap(raw, at, key);
  switch (typeof value) {
    case 'undefined':
      return undefined;
    case 'string':
      if (!value.isWellFormed()) throw invalid(at, 'a string with half a surrogate pair changes on the way');
      return value;
    case 'boolean':
      return value;
    case 'number':
      if (!Number.isFinite(value)) throw invalid(at, `${value} has no JSON form`);
      return Object.is(value, -0) ? 0 : value;
    case 'object':
      return value === null ? null : container(value, at, parents);
    default:
      throw invalid(at, `a ${typeof value} has no JSON form`);
  }
}

/** `toJSON` is honoured as `JSON.stringify` does it; boxed primitives are opened. */
function unwrap(raw: unknown, at: Place, key: string | number): unknown {
  if (typeof raw === 'string') return raw;
  if (raw instanceof Date && Number.isNaN(raw.getTime())) throw invalid(at, 'an invalid Date has no JSON form');
  const toJson = (raw as { toJSON?: unknown } | null | undefined)?.toJSON;
  const value: unknown = typeof toJson === 'function' ? toJson.call(raw, String(key)) : raw;
  if (value instanceof String || value instanceof Number || value instanceof Boolean) return value.valueOf();
  return value;
}

function container(value: object, at: Place, parents: Set<object>): JsonValue {
  if (parents.has(value)) throw invalid(at, 'the value contains itself');
  if (parents.size >= MAX_DEPTH) throw invalid(at, `nested deeper than ${MAX_DEPTH} levels`);
  if (value instanceof Map || value instanceof Set) {
    throw invalid(at, `a ${value.constructor.name} would be sent as {}: convert it to an object or a list`);
  }
  parents.add(value);
  try {
    return Array.isArray(value) ? list(value, at, parents) : object(value, at, parents);
  } finally {
    parents.delete(value);
  }
}

function list(value: readonly unknown[], at: Place, parents: Set<object>): JsonValue[] {
  return Array.from(value, (item, index) => convert(item, { up: at, step: index }, index, parents) ?? null);
}

function object(value: object, at: Place, parents: Set<object>): { [key: string]: JsonValue } {
  const result: { [key: string]: JsonValue } = {};
  for (const [key, item] of Object.entries(value)) {
    const place = { up: at, step: key };
    if (key === '_bsontype' || key === '__proto__') throw invalid(place, 'this name cannot be stored');
    if (key.includes('\0') || !key.isWellFormed()) {
      throw invalid(at, `the name ${JSON.stringify(key)} cannot be stored`);
    }
    const converted = convert(item, place, key, parents);
    if (converted !== undefined) result[key] = converted;
  }
  return result;
}

function invalid(at: Place, reason: string): InvalidInputError {
  const path = pathOf(at);
  return new InvalidInputError('invalid_payload', `${path}: ${reason}`, path);
}

function pathOf({ up, step }: Place): string {
  if (!up) return String(step);
  return typeof step === 'number' ? `${pathOf(up)}[${step}]` : `${pathOf(up)}.${step}`;
}
