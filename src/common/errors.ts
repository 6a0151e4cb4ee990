/** The errors callers can meet. Each has a stable `code`; bad input also names the `field`, always before any write. */

export class SidelaneError extends Error {
  constructor(
    /** Stable, for programs: `unknown_target`, `invalid_payload`, … */
    readonly code: string,
    message: string,
    /** Path of the value at fault, e.g. `items[2].options.version`. */
    readonly field?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** A value the caller passed cannot be used. Nothing was written. */
export class InvalidInputError extends SidelaneError {}

/** The engine cannot start on this database or with these options; says what to change. */
export class BootError extends SidelaneError {}

/** Work outlived its transaction and tried to write in it: the write would have escaped the commit. */
export class TransactionEndedError extends SidelaneError {
  constructor(
    message = 'The transaction of this call has ended: await all work inside inTransaction(), or pass `tx: null` to write outside of it on purpose.',
  ) {
    super('transaction_ended', message, 'tx');
  }
}

/** The row is no longer this run's: its lease ran out, an admin acted on it, or it was finished already. */
export class ClaimLostError extends SidelaneError {
  constructor(message: string) {
    super('claim_lost', message);
  }
}

/**
 * The database did not answer in time. Nobody knows whether the command was, or will yet be, carried out. In a transaction
 * throw it on: aborted, nothing of it stands; whoever swallows it and commits by himself may commit without it.
 */
export class NoAnswerError extends SidelaneError {
  constructor(what: string, ms: number) {
    super('no_answer', `${what}: no answer of the database within ${ms} ms`);
  }
}

/** The connection broke, or nothing came back, while a transaction committed: nobody knows whether it did. */
export class CommitUnknownError extends SidelaneError {
  constructor(message: string, options?: ErrorOptions) {
    super('commit_unknown', message, undefined, options);
  }
}

/**
 * Text of anything thrown, without ever throwing itself. An Error's message may be anything too: a response body that was
 * assigned to it makes it a list, and what ends a run must not fail over that.
 */
export function errorText(error: unknown): string {
  try {
    if (!(error instanceof Error)) return String(error);
    return text(error.message) || text(error.name) || NO_TEXT;
  } catch {
    return NO_TEXT;
  }
}

const NO_TEXT = 'an error that has no text';

function text(value: unknown): string {
  const words = String(value);
  return value === undefined || value === null ? '' : words;
}
