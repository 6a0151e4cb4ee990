import { describe, expect, it } from '@jest/globals';
import { errorText } from '../../src/common/errors.js';
import { historyErrorText, LAST_ERROR_CHARS, lastErrorText } from '../../src/jobs/policy/failure_text.js';
import { logText } from '../../src/jobs/policy/log_text.js';
import { classifyError } from '../../src/jobs/policy/outcome.js';

const withMessage = (message: unknown): Error => Object.assign(new Error('before'), { message });
const throwing = (): never => {
  throw new Error('no text here');
};
const gone = Proxy.revocable(new Error('gone'), {});
gone.revoke();

/** What foreign code throws: `instanceof Error` says nothing of what stands in its fields. */
const ODD: [string, unknown, string][] = [
  ['an Error whose message is a list', withMessage(['a', 'b']), 'a,b'],
  ['an Error whose message is an object', withMessage({ code: 1 }), '[object Object]'],
  ['an Error whose message is a number', withMessage(404), '404'],
  ['an Error whose message is a symbol', withMessage(Symbol('s')), 'Symbol(s)'],
  ['an Error whose message is null', withMessage(null), 'Error'],
  ['an Error without a message or a name', Object.assign(new Error(''), { name: null }), 'an error that has no text'],
  [
    'an Error whose message cannot be read',
    Object.defineProperty(new Error('x'), 'message', { get: throwing }),
    'an error that has no text',
  ],
  ['an Error whose message cannot be put into words', withMessage({ toString: throwing }), 'an error that has no text'],
  ['a proxy that is revoked', gone.proxy, 'an error that has no text'],
  ['an object without a prototype', Object.create(null), 'an error that has no text'],
  ['nothing', undefined, 'undefined'],
];

describe('the text of anything thrown', () => {
  it.each(ODD)('%s', (_, error, text) => {
    expect(errorText(error)).toBe(text);
    expect(lastErrorText(error)).toBe(text);
    expect(historyErrorText(error)).toBe(text);
    expect(logText(error)).toBe(text);
  });

  it('is cut, and stays well formed', () => {
    const text = lastErrorText(withMessage(['😀'.repeat(LAST_ERROR_CHARS)]));
    expect(text.length).toBeLessThanOrEqual(LAST_ERROR_CHARS);
    expect(text.isWellFormed()).toBe(true);
  });

  it.each(ODD)('%s is an answer of the target', (_, error) => {
    expect(classifyError(error).kind).toBe('answered');
  });
});
