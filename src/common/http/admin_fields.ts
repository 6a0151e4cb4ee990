/** Field rules of admin requests: plain texts of a known length, whole numbers and times out of a query string. */
import { applyDecorators } from '@nestjs/common';
import { Transform } from 'class-transformer';
import { IsDate, IsInt, Max, Min, ValidateBy } from 'class-validator';

/** Names, keys and codes of the engine are never longer. */
export const MAX_TEXT_CHARS = 500;

/** What the engine itself takes for a name or a key: it comes back from the database as it went in. */
export function isPlainText(value: unknown, max: number): value is string {
  return (
    typeof value === 'string' &&
    value.length >= 1 &&
    value.length <= max &&
    value.isWellFormed() &&
    !value.includes('\0')
  );
}

/** A string of 1 to `max` characters without NUL; never an operator object, never a list. */
export function IsPlainText(max = MAX_TEXT_CHARS): PropertyDecorator {
  return ValidateBy({
    name: 'isPlainText',
    validator: {
      validate: (value: unknown) => isPlainText(value, max),
      defaultMessage: (args) => `${args?.property}: expected a text of 1 to ${max} characters without NUL`,
    },
  });
}

/** A whole number, also as the digits of a query string; nothing else that JavaScript would take for a number. */
export function IsWholeNumber(min: number, max: number): PropertyDecorator {
  return applyDecorators(
    Transform(({ value }: { value: unknown }) =>
      typeof value === 'string' && /^-?\d{1,9}$/.test(value) ? Number(value) : value,
    ),
    IsInt(),
    Min(min),
    Max(max),
  );
}

const ISO_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?(Z|[+-]\d{2}:\d{2})$/;

/** A point in time with its zone, as `2026-01-31T08:00:00Z`. */
export function IsTime(): PropertyDecorator {
  return applyDecorators(
    Transform(({ value }: { value: unknown }) =>
      typeof value === 'string' && ISO_TIME.test(value) && isDayOfMonth(value) ? new Date(value) : value,
    ),
    IsDate(),
  );
}

/** JavaScript takes the 31st of February for a day of March, and who asked for it would get other rows than named. */
function isDayOfMonth(time: string): boolean {
  return new Date(time.slice(0, 10)).getUTCDate() === Number(time.slice(8, 10));
}

/** `true` or `false`, in a query string as well. */
export function toBoolean({ value }: { value: unknown }): unknown {
  return value === 'true' ? true : value === 'false' ? false : value;
}
