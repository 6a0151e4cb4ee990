/** Options of `SchedulesModule.forRoot()`; checked once, unknown names are errors. */
import { BootError } from '../common/errors.js';
import { timeZone } from './time_zone.js';

export interface SchedulesConfig {
  /** Zone of schedules that name none: an IANA name or an offset. Default `+07:00`. */
  readonly timezone: string;
}

export type SchedulesModuleOptions = Partial<SchedulesConfig>;

export const SCHEDULES_DEFAULTS: SchedulesConfig = { timezone: '+07:00' };
export const SCHEDULES_CONFIG = Symbol('sidelane.schedules.config');

/** Throws `BootError('invalid_options')` that names the option. */
export function resolveSchedulesOptions(raw: SchedulesModuleOptions = {}): SchedulesConfig {
  const { timezone = SCHEDULES_DEFAULTS.timezone, ...rest } = raw;
  const unknown = Object.keys(rest)[0];
  if (unknown !== undefined) throw invalid(`schedules.${unknown}`, `schedules.${unknown}: unknown option`);
  try {
    timeZone(timezone, 'schedules.timezone');
  } catch (error) {
    throw invalid('schedules.timezone', (error as Error).message, error);
  }
  return { timezone };
}

function invalid(field: string, message: string, cause?: unknown): BootError {
  return new BootError('invalid_options', message, field, { cause });
}
