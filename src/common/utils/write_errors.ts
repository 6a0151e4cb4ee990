/** Reads the server's errors that the engine expects. By shape, not by class: the host's driver may be another copy. */

const DUPLICATE_KEY = 11000;

interface ServerError {
  code?: unknown;
  message?: string;
  writeErrors?: unknown;
  addErrorLabel?(label: string): void;
  hasErrorLabel?(label: string): boolean;
}

const TRANSIENT = 'TransientTransactionError';

/** True when every fault of this error is a duplicate key, on the named index if one is given. */
export function isDuplicateKey(error: unknown, index?: string): boolean {
  const faults = writeErrorsOf(error);
  const all = faults.length > 0 ? faults.map((fault) => fault.message) : [(error as ServerError | null)?.message ?? ''];
  if ((error as ServerError | null)?.code !== DUPLICATE_KEY) return false;
  if (faults.some((fault) => fault.code !== DUPLICATE_KEY)) return false;
  return index === undefined || all.every((message) => message.includes(index));
}

/** The faults of a bulk write, by the position of the operation. */
export function writeErrorsOf(error: unknown): { index: number; code: number; message: string }[] {
  const raw = (error as ServerError | null)?.writeErrors;
  const list: unknown[] = Array.isArray(raw) ? raw : raw ? [raw] : [];
  return list.map((item) => {
    const fault = item as { index: number; code: number; errmsg?: string };
    return { index: fault.index, code: fault.code, message: fault.errmsg ?? '' };
  });
}

/** Makes the driver run the transaction's callback again: the next attempt's snapshot sees what this one collided with. */
export function labelTransient(error: unknown): void {
  (error as ServerError).addErrorLabel?.(TRANSIENT);
}

/** True when the driver runs the transaction's callback again after this error. */
export const isTransient = (error: unknown): boolean => hasLabel(error, TRANSIENT);

/** True when nobody knows whether the transaction committed. */
export const isCommitUnknown = (error: unknown): boolean => hasLabel(error, 'UnknownTransactionCommitResult');

function hasLabel(error: unknown, label: string): boolean {
  return (error as ServerError | null | undefined)?.hasErrorLabel?.(label) ?? false;
}
