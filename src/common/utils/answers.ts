/**
 * Bounds how long the engine waits for the answer to a command.
 *
 * Promises: every command of a collection made here settles within `ms`, whatever the driver does; cursors are read by their
 * methods that promise something (`toArray`, `next`), not by iterating. A driver may lose one for
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

/**
 * Where each method takes its options. They carry a signal that is given when a command is given up: what was not sent yet is
 * not sent any more (in a transaction that was aborted meanwhile it would go out as a write of its own), and the connection it
 * holds goes back to the pool, which would be used up otherwise, one lost command after the other.
 */
const OPTIONS_AT: Readonly<Record<string, number>> = {
  aggregate: 1,
  bulkWrite: 1,
  countDocuments: 1,
  deleteMany: 1,
  deleteOne: 1,
  find: 1,
  findOne: 1,
  findOneAndDelete: 1,
  findOneAndUpdate: 2,
  insertMany: 1,
  insertOne: 1,
  updateMany: 2,
  updateOne: 2,
};

/** Throws `NoAnswerError` when `answer` has not settled within `ms`; what it does later is ignored, never unhandled. */
export async function answerWithin<T>(
  ms: number,
  what: string,
  answer: Promise<T>,
  command?: AbortController,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    // Not the engine's clock: the collections are there before it, and a test that moves time on means no command by it.
    timer = setTimeout(() => {
      const error = new NoAnswerError(what, ms);
      reject(error); // first: the command, called off, may throw something else
      command?.abort(error);
    }, ms).unref();
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

/** Bounds what the methods of a collection, or of one of its cursors (`command`), answer with. */
function bounded<T extends object>(ms: number, of: T, name: string, command?: AbortController): T {
  const proxy: T = new Proxy(of, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function' || UNBOUNDED.has(key)) return value;
      const what = `${name}.${String(key)}`;
      return (...args: unknown[]): unknown => {
        const calledOff = command ?? new AbortController();
        if (!command) addSignal(args, OPTIONS_AT[String(key)], calledOff.signal);
        const result: unknown = value.apply(target, args);
        if (result === target) return proxy; // a cursor that is being built
        if (result instanceof Promise) return answerWithin(ms, what, result, calledOff);
        return isCursor(result) ? bounded(ms, result, what, calledOff) : result;
      };
    },
  });
  return proxy;
}

function addSignal(args: unknown[], at: number | undefined, signal: AbortSignal): void {
  if (at !== undefined) args[at] = { ...(args[at] as object | undefined), signal };
}

function isCursor(value: unknown): value is object {
  return typeof value === 'object' && value !== null && 'toArray' in value;
}
