// Promises: every failure reaches the driver as MongoDB would have put it: code, name and the labels that tell a driver
// whether to run the transaction or the write again. Must never turn an unknown failure into one that invites a retry.
import { codeNameOf, codeOfExtensionState } from './error_codes.js';
import type { Document } from './bson.codec.js';

export const Code = {
  InternalError: 1,
  BadValue: 2,
  NamespaceNotFound: 26,
  CursorNotFound: 43,
  NamespaceExists: 48,
  MaxTimeMSExpired: 50,
  CommandNotFound: 59,
  ShutdownInProgress: 91,
  WriteConflict: 112,
  CommandNotSupported: 115,
  ConflictingOperationInProgress: 117,
  CursorInUse: 143,
  CannotBuildIndexKeys: 201,
  TransactionTooOld: 225,
  NoSuchTransaction: 251,
  TransactionCommitted: 256,
  OperationNotSupportedInTransaction: 263,
  DuplicateKey: 11000,
  OutOfDiskSpace: 14031,
} as const;

const TRANSIENT = new Set<number>([Code.WriteConflict, Code.NoSuchTransaction, Code.ShutdownInProgress]);

/** A failure as MongoDB tells it. */
export class CommandError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly extra: Document = {},
  ) {
    super(message);
  }
}

/** What node-postgres throws: its SQLSTATE is in `code` (a system error's name when the connection itself failed). */
export interface PostgresError extends Error {
  code?: string;
  detail?: string;
  constraint?: string;
  table?: string;
}

const BY_STATE = new Map<string, number>([
  ['23505', Code.DuplicateKey],
  ['23P01', Code.DuplicateKey],
  ['40001', Code.WriteConflict],
  ['40P01', Code.WriteConflict],
  ['55P03', Code.WriteConflict],
  ['42P01', Code.NamespaceNotFound],
  ['42P07', Code.NamespaceExists],
  ['57014', Code.MaxTimeMSExpired],
  ['53100', Code.OutOfDiskSpace],
  ['54000', Code.CannotBuildIndexKeys],
  ['0A000', Code.CommandNotSupported],
  ['22023', Code.BadValue],
  ['22P02', 9],
  ['53200', 146],
  ['53300', Code.ShutdownInProgress],
]);

export function codeOfState(state: string): number {
  return codeOfExtensionState(state) ?? BY_STATE.get(state) ?? (isConnectionLoss(state) ? Code.ShutdownInProgress : 1);
}

/** True when the connection to PostgreSQL, or PostgreSQL itself, went away: what it was doing may or may not be done. */
export function isConnectionLoss(state: string | undefined): boolean {
  return state === undefined || /^(08|57P0|E[A-Z]{3,})/.test(state);
}

/** The extension packs SQLSTATEs of single writes into a number, six bits a character. */
export function unpackState(code: number): string {
  let state = '';
  for (let shift = 0; shift < 30; shift += 6) state += String.fromCharCode(((code >>> shift) & 0x3f) + 48);
  return state;
}

/** A race for PostgreSQL's or the extension's own catalogs: two created the same collection or index, or one dropped it. */
export function isCatalogRace({ code, constraint, message }: PostgresError): boolean {
  if (code === '23505') return !/^(collection_pk_\d+|documents_rum_index_\d+)$/.test(constraint ?? '');
  if (code === 'XX000')
    return /concurrently (updated|deleted)|could not open relation|cache lookup failed/.test(message);
  if (code === 'M0000') return message.startsWith('Unable to create'); // a collection or a database, just made by another
  return code === '42P07' || code === '42P01';
}

/** A conflict with another writer that leaves nothing behind, so the same statement may simply run again. */
export function isConflict(error: unknown): boolean {
  const failure = error as PostgresError;
  return failure.code === '40001' || failure.code === '40P01' || failure.code === '55P03' || isCatalogRace(failure);
}

export function toCommandError(error: unknown): CommandError {
  if (error instanceof CommandError) return error;
  const failure = error as PostgresError;
  if (isConflict(failure)) return new CommandError(Code.WriteConflict, `WriteConflict error: ${failure.message}`);
  if (!('code' in failure) && !/connection|terminat/i.test(failure.message)) {
    return new CommandError(Code.InternalError, failure.stack ?? failure.message);
  }
  const code = isConnectionLoss(failure.code) ? Code.ShutdownInProgress : codeOfState(failure.code ?? '');
  return new CommandError(code, code === Code.InternalError ? `${failure.message} (${failure.code})` : failure.message);
}

export interface ErrorScope {
  inTransaction: boolean;
  /** The driver sent the write with a number, so that it may send it again. */
  retryableWrite: boolean;
  committing: boolean;
}

export function errorReply(error: unknown, scope: ErrorScope): Document {
  const { code, message, extra } = toCommandError(error);
  const labels = labelsOf(code, scope);
  return {
    ok: 0,
    errmsg: message,
    code,
    codeName: codeNameOf(code),
    ...extra,
    ...(labels.length ? { errorLabels: labels } : {}),
  };
}

function labelsOf(code: number, scope: ErrorScope): string[] {
  if (scope.committing && code === Code.ShutdownInProgress) return ['RetryableWriteError'];
  if (scope.inTransaction) return TRANSIENT.has(code) ? ['TransientTransactionError'] : [];
  return scope.retryableWrite && code === Code.ShutdownInProgress ? ['RetryableWriteError'] : [];
}
