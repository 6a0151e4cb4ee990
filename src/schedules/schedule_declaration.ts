/** What code says about a schedule, checked and with its defaults filled in. Pure. */
import { InvalidInputError } from '../common/errors.js';
import type { Job, JobContext } from '../jobs/jobs.types.js';
import { parseCron } from './cron.js';
import { DEFAULT_RETRY_COUNT, defaultPolicy, MissedSlotPolicy } from './schedule_rules.js';

export interface SlotRun {
  /** The time the slot stands for; for a run an admin asked for, the time of asking. */
  readonly slot: Date;
  readonly job: Job;
  readonly ctx: JobContext;
}

/** Must be idempotent per slot: a slot whose pod died runs again from the start. */
export type ScheduleHandler = (run: SlotRun) => Promise<unknown>;

export interface ScheduleOptions {
  /** Name in the database and in URLs; its target is `schedule:<code>`. */
  code: string;
  /** 5 fields, or 6 with seconds first; names, `L`, `W` and `#` are understood. */
  cron: string;
  /** IANA name or offset (`+07:00`). Default: the module's `timezone`. */
  timezone?: string;
  /** Default: `skip` when slots are 5 minutes apart or less, else `run_once`. */
  missed_slot_policy?: MissedSlotPolicy;
  /** Runs per slot, retries included, before its row is DEAD. Default 3. */
  retry_count?: number;
}

export interface ScheduleDeclaration extends ScheduleOptions {
  handler: ScheduleHandler;
}

/** What a schedule's row takes over from code at every boot. */
export type DeclaredFields = Readonly<Required<ScheduleOptions>>;

const KNOWN = new Set(['code', 'cron', 'timezone', 'missed_slot_policy', 'retry_count', 'handler']);
const CODE = /^[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}$/;
const MAX_RETRY_COUNT = 1000;

export const targetOf = (code: string): string => `schedule:${code}`;

/** Throws `invalid_schedule`, `invalid_cron` or `invalid_timezone`, with the field. */
export function checkDeclaration(declaration: ScheduleDeclaration, defaultZone: string): DeclaredFields {
  const { code, cron, timezone = defaultZone, missed_slot_policy, retry_count = DEFAULT_RETRY_COUNT } = declaration;
  for (const name of Object.keys(declaration)) if (!KNOWN.has(name)) throw invalid(code, name, 'unknown option');
  if (typeof code !== 'string' || !CODE.test(code))
    throw invalid(code, 'code', 'expected 1 to 100 letters, digits, "_", "-", "." or ":", a letter or digit first');
  if (typeof declaration.handler !== 'function') throw invalid(code, 'handler', 'expected a function');
  if (!Number.isSafeInteger(retry_count) || retry_count < 1 || retry_count > MAX_RETRY_COUNT)
    throw invalid(code, 'retry_count', `expected a whole number from 1 to ${MAX_RETRY_COUNT}, got ${retry_count}`);
  if (missed_slot_policy !== undefined && !Object.values(MissedSlotPolicy).includes(missed_slot_policy))
    throw invalid(code, 'missed_slot_policy', `expected ${Object.values(MissedSlotPolicy).join(' or ')}`);
  const { interval_ms } = parseCron(cron, timezone);
  return { code, cron, timezone, missed_slot_policy: missed_slot_policy ?? defaultPolicy(interval_ms), retry_count };
}

function invalid(code: unknown, field: string, reason: string): InvalidInputError {
  const name = typeof code === 'string' ? code.slice(0, 100) : typeof code;
  return new InvalidInputError('invalid_schedule', `schedule ${name}: ${field}: ${reason}`, field);
}
