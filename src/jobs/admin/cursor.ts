/** Places in a list as clients carry them: opaque to them, and checked when they come back. */
import mongoose from 'mongoose';
import { adminError } from '../../common/http/admin_error.js';
import { isPlainText, MAX_TEXT_CHARS } from '../../common/http/admin_fields.js';

/** A place among keys: two texts, of which JSON makes up to six bytes a character, and base64 a third more. */
export const MAX_CURSOR_CHARS = 2 * MAX_TEXT_CHARS * 8 + 100;

export interface KeyCursor {
  readonly target: string;
  readonly partition: number;
  readonly order_key: string;
}

export function idCursor(id: mongoose.Types.ObjectId): string {
  return Buffer.from(id.toHexString(), 'hex').toString('base64url');
}

/** 400 `invalid_cursor` for anything that `idCursor` did not make. */
export function readIdCursor(cursor: string | undefined): mongoose.Types.ObjectId | undefined {
  if (cursor === undefined) return undefined;
  if (!/^[\w-]{16}$/.test(cursor)) throw invalidCursor();
  return new mongoose.Types.ObjectId(Buffer.from(cursor, 'base64url').toString('hex'));
}

export function keyCursor({ target, partition, order_key }: KeyCursor): string {
  return Buffer.from(JSON.stringify([target, partition, order_key])).toString('base64url');
}

/** 400 `invalid_cursor` for anything that `keyCursor` could not have made, and for a place outside of the target `only`. */
export function readKeyCursor(cursor: string | undefined, only?: string): KeyCursor | undefined {
  if (cursor === undefined) return undefined;
  const parts = parse(cursor);
  if (!Array.isArray(parts) || parts.length !== 3) throw invalidCursor();
  const [target, partition, order_key] = parts as unknown[];
  if (!isPlainText(target, MAX_TEXT_CHARS) || !isPlainText(order_key, MAX_TEXT_CHARS)) throw invalidCursor();
  // The list would go on among the keys of the place's own target.
  if (only !== undefined && target !== only) throw invalidCursor();
  if (!Number.isSafeInteger(partition) || (partition as number) < 0) throw invalidCursor();
  return { target, partition: partition as number, order_key };
}

function parse(cursor: string): unknown {
  if (!/^[\w-]+$/.test(cursor)) return undefined;
  try {
    return JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8'));
  } catch {
    return undefined;
  }
}

function invalidCursor(): Error {
  return adminError(400, 'invalid_cursor', 'cursor: expected the `next_cursor` of an earlier answer');
}
