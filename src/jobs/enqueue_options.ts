/** Checks what a caller may say about a row; each fault names its field. Pure. */
import { InvalidInputError } from '../common/errors.js';
import type { JobPriority } from './jobs.types.js';

export interface EnqueueOptions {
  /** Business name of the job; default: the target's name. */
  code?: string;
  /** Ordering key, and the Kafka message key. */
  key?: string;
  /** Order inside the key; default 0, and then rows run as they were enqueued. */
  version?: number;
  /** Idempotency key; default: a new one, so every enqueue makes a row. */
  dedupe_key?: string;
  headers?: Record<string, string>;
  /** Not before this time. Not together with `delay_ms`. */
  run_at?: Date;
  /** Not before this many milliseconds from now. */
  delay_ms?: number;
  /** 1 low, 2 normal, 3 high; orders the long lane. */
  priority?: JobPriority;
}

const OPTIONS = ['code', 'key', 'version', 'dedupe_key', 'headers', 'run_at', 'delay_ms', 'priority'];
const KNOWN = new Set([...OPTIONS, 'target', 'payload']);
/** Index keys: longer ones would bloat every index they are in. */
const MAX_KEY_CHARS = 500;
const MAX_DELAY_MS = 10 * 365 * 24 * 3600 * 1000;

/** Of options, or of an item that names its target and payload beside them. */
export function checkEnqueueOptions(options: EnqueueOptions, field: string): void {
  for (const name of Object.keys(options)) if (!KNOWN.has(name)) throw fault(field, name, 'unknown option');
  for (const name of ['code', 'key', 'dedupe_key'] as const) {
    const value: unknown = options[name];
    if (value !== undefined && !isKey(value))
      throw fault(field, name, `expected a string of 1 to ${MAX_KEY_CHARS} characters without NUL`);
  }
  const { version, run_at, delay_ms, priority, headers } = options;
  if (version !== undefined && !Number.isSafeInteger(version)) throw fault(field, 'version', 'expected a whole number');
  // bson stores an invalid Date as 1970, which would mean "run now".
  if (run_at !== undefined && !(run_at instanceof Date && Number.isFinite(run_at.getTime())))
    throw fault(field, 'run_at', 'expected a valid Date');
  if (delay_ms !== undefined && !(Number.isSafeInteger(delay_ms) && delay_ms >= 0 && delay_ms <= MAX_DELAY_MS))
    throw fault(field, 'delay_ms', `expected a whole number from 0 to ${MAX_DELAY_MS}`);
  if (run_at !== undefined && delay_ms !== undefined)
    throw fault(field, 'delay_ms', 'expected either run_at or delay_ms');
  if (priority !== undefined && ![1, 2, 3].includes(priority)) throw fault(field, 'priority', 'expected 1, 2 or 3');
  if (headers !== undefined) checkHeaders(headers, field);
}

/** Redis hands a lossy job out at once and in no order: a wish that cannot come true is refused. */
export function checkLossyOptions(options: EnqueueOptions, field: string): void {
  for (const name of ['run_at', 'delay_ms', 'priority'] as const) {
    if (options[name] !== undefined) throw fault(field, name, 'a lossy target runs its jobs at once, in no order');
  }
}

function checkHeaders(headers: unknown, field: string): void {
  if (typeof headers !== 'object' || headers === null || Array.isArray(headers))
    throw fault(field, 'headers', 'expected an object of strings');
  for (const [name, value] of Object.entries(headers)) {
    if (['', '__proto__', '_bsontype'].includes(name) || name.includes('\0') || !name.isWellFormed())
      throw fault(field, 'headers', `the name ${JSON.stringify(name)} cannot be stored`);
    if (typeof value !== 'string' || !value.isWellFormed()) throw fault(field, `headers.${name}`, 'expected a string');
  }
}

function isKey(value: unknown): boolean {
  return (
    typeof value === 'string' &&
    value.length > 0 &&
    value.length <= MAX_KEY_CHARS &&
    !value.includes('\0') &&
    value.isWellFormed()
  );
}

function fault(field: string, name: string, reason: string): InvalidInputError {
  return new InvalidInputError('invalid_options', `${field}.${name}: ${reason}`, `${field}.${name}`);
}
