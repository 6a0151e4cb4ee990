/**
 * What an error may say in a log line or a span: short, because handlers put parts of their payload into error texts,
 * and without the user and password of any URL in it. Pure.
 */
import { errorText } from '../../common/errors.js';

const CHARS = 200;
/** Text is looked at this far at most; a URL that begins within `CHARS` has its password before that. */
const LOOKED_AT = 2_000;

export function logText(error: unknown): string {
  const masked = errorText(error)
    .slice(0, LOOKED_AT)
    // Up to the last "@" without a blank: a password may hold "@" and "/" itself. Better too much than a piece of it.
    .replace(/:\/\/\S*@/g, '://***@');
  return (masked.length <= CHARS ? masked : `${masked.slice(0, CHARS - 1)}…`).toWellFormed();
}
