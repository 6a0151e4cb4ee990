/** Which errors say that the database could not be reached. */
import { describe, expect, it } from '@jest/globals';
import { CommitUnknownError, NoAnswerError } from '../../src/common/errors.js';
import { comesOfDatabaseAway, isDatabaseAway } from '../../src/common/utils/database_away.js';

const socketError = (syscall: string | undefined, code: string): Error =>
  Object.assign(new Error(`${syscall} ${code}`), { code, ...(syscall && { syscall }) });

describe('the database is away', () => {
  it.each([
    ['a write that breaks', socketError('write', 'ECONNRESET')],
    ['a write into a closed connection', socketError('write', 'EPIPE')],
    ['a read that breaks', socketError('read', 'ECONNRESET')],
    ['a read that times out', socketError('read', 'ETIMEDOUT')],
    ['a connection that is called off', socketError('write', 'ECONNABORTED')],
    ['an answer that does not come', new NoAnswerError('update', 100)],
    ['a commit that nobody knows', new CommitUnknownError('unknown')],
    ['a node that is no primary any more', Object.assign(new Error('not primary'), { code: 10107 })],
  ])('by %s', (_, error) => {
    expect(isDatabaseAway(error)).toBe(true);
    expect(comesOfDatabaseAway(new Error('of it', { cause: error }))).toBe(true);
  });

  it.each([
    ['a name that nobody knows', socketError('getaddrinfo', 'ENOTFOUND')],
    ['a file that cannot be written', socketError('write', 'ENOSPC')],
    ['the words alone', socketError(undefined, 'ECONNRESET')],
    ['a fault of the program', new TypeError('commitError.hasErrorLabel is not a function')],
    ['nothing at all', undefined],
  ])('not by %s', (_, error) => {
    expect(isDatabaseAway(error)).toBe(false);
    expect(comesOfDatabaseAway(error)).toBe(false);
  });
});
