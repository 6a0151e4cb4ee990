/** Error texts are cut before they are stored, so that the final write of a row always fits. Pure. */
import { errorText } from '../../common/errors.js';

/** Reference: `last_error` is cut to 2000 characters. */
export const LAST_ERROR_CHARS = 2000;
const HISTORY_ERROR_CHARS = 500;

export const lastErrorText = (error: unknown): string => cut(errorText(error), LAST_ERROR_CHARS);
export const historyErrorText = (error: unknown): string => cut(errorText(error), HISTORY_ERROR_CHARS);

function cut(text: string, chars: number): string {
  const clean = text.toWellFormed().replaceAll('\0', '');
  return clean.length <= chars ? clean : clean.slice(0, chars).toWellFormed();
}
