/**
 * Bounds how long the engine waits for the answer to a command.
 *
 * Promises: every command of a collection made here settles within `ms`, whatever the driver does. A driver may lose one for
 * good (docs/decisions/0016): without this the cell, the loop or the transaction that waits for it stands still until the
 * process ends, while its lease is renewed beside it.
 *
 * What was given up may still be carried out: to whoever waits it is a command whose reply was lost. So every write that
 * can come late is fenced against what was written since.
 */
import type { mongo } from 'mongoose';
import { NoAnswerError } from '../errors.js';

/** Building an index takes as long as it takes, and only a boot waits for it. */
const UNBOUNDED: ReadonlySet<PropertyKey> = new Set(['createIndex', 'createIndexes']);

/** Throws `NoAnswerError` when `answer` has not settled within `ms`; what it does later is ignored, never unhandled. */
export async function answerWithin<T>(ms: number, what: string, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    // Not the engine's clock: the collections are there before it, and a test that moves time on means no command by it.
    timer = setTimeout(() => reject(new NoAnswerError(what, ms)), ms).unref();
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** The same collection, none of whose commands is waited for longer than `ms`. */
export function answeredWithin<Doc extends mongo.Document>(
  ms: number,
  collection: mongo.Collection<Doc>,
): mongo.Collection<Doc> {
  return bounded(ms, collection, collection.collectionName);
}

/** Bounds what the methods of a collection, or of one of its cursors, answer with. */
function bounded<T extends object>(ms: number, of: T, name: string): T {
  const proxy: T = new Proxy(of, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function' || UNBOUNDED.has(key)) return value;
      return (...args: unknown[]): unknown => {
        const result: unknown = value.apply(target, args);
        if (result === target) return proxy; // a cursor that is being built
        if (result instanceof Promise) return answerWithin(ms, `${name}.${String(key)}`, result);
        return isCursor(result) ? bounded(ms, result, `${name}.${String(key)}`) : result;
      };
    },
  });
  return proxy;
}

function isCursor(value: unknown): value is object {
  return typeof value === 'object' && value !== null && 'toArray' in value;
}
