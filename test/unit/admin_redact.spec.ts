/** Masking of payloads by a target's `redact` paths. */
import { expect, it } from '@jest/globals';
import { redact } from '../../src/jobs/policy/redact.js';
import type { JsonValue } from '../../src/jobs/jobs.types.js';

const X = '[redacted]';

it.each<[name: string, payload: JsonValue, paths: string[], shown: JsonValue]>([
  ['nothing without paths', { a: 1 }, [], { a: 1 }],
  ['a property', { a: 1, b: 2 }, ['a'], { a: X, b: 2 }],
  ['a nested one', { a: { b: 1, c: 2 } }, ['a.b'], { a: { b: X, c: 2 } }],
  ['a whole branch', { a: { b: { c: 1 } } }, ['a'], { a: X }],
  ['a list as a whole', { a: [1, 2] }, ['a'], { a: X }],
  ['in every item, by star', { a: [{ s: 1 }, { s: 2, t: 3 }] }, ['a.*.s'], { a: [{ s: X }, { s: X, t: 3 }] }],
  ['in every item, without a star', { a: [{ s: 1 }, { s: 2 }] }, ['a.s'], { a: [{ s: X }, { s: X }] }],
  ['in lists of lists', { a: [[{ s: 1 }]] }, ['a.s'], { a: [[{ s: X }]] }],
  ['one item by its number', { a: ['x', 'y'] }, ['a.1'], { a: ['x', X] }],
  ['every property, by star', { a: { b: 1, c: 2 } }, ['a.*'], { a: { b: X, c: X } }],
  ['several paths', { a: 1, b: { c: 2 } }, ['a', 'b.c'], { a: X, b: { c: X } }],
  ['what is there already masked', { a: { b: 1 } }, ['a', 'a.b'], { a: X }],
  ['null and false too', { a: null, b: false }, ['a', 'b'], { a: X, b: X }],
  ['nothing where the path leads nowhere', { a: 1, c: 'text' }, ['b', 'a.b', 'c.length'], { a: 1, c: 'text' }],
  ['nothing of a payload that is no object', 'text', ['a'], 'text'],
  ['a list at the top', [{ s: 1 }], ['s'], [{ s: X }]],
])('masks %s', (_, payload, paths, shown) => {
  const before = JSON.stringify(payload);
  expect(redact(payload, paths)).toEqual(shown);
  expect(JSON.stringify(payload)).toBe(before);
});

it('keeps a property named __proto__ a property', () => {
  const payload = JSON.parse('{"__proto__":{"s":1},"a":2}') as JsonValue;
  const shown = redact(payload, ['a']);
  expect(JSON.stringify(shown)).toBe('{"__proto__":{"s":1},"a":"[redacted]"}');
  expect(JSON.stringify(redact(payload, ['__proto__.s']))).toBe('{"__proto__":{"s":"[redacted]"},"a":2}');
});
