/** The pure parts of the admin HTTP layer: who acts, what an error looks like, places in lists. */
import { describe, expect, it } from '@jest/globals';
import { BadRequestException, ForbiddenException, HttpException, NotFoundException } from '@nestjs/common';
import fc from 'fast-check';
import mongoose from 'mongoose';
import { CommitUnknownError, InvalidInputError, NoAnswerError, SidelaneError } from '../../src/common/errors.js';
import { actorName } from '../../src/common/http/admin_actor.js';
import { adminError } from '../../src/common/http/admin_error.js';
import { adminErrorBody } from '../../src/common/http/admin_error.filter.js';
import { idCursor, keyCursor, MAX_CURSOR_CHARS, readIdCursor, readKeyCursor } from '../../src/jobs/admin/cursor.js';

describe('who acts', () => {
  const id = new mongoose.Types.ObjectId();
  it.each<[user: unknown, actor: Record<string, unknown> | undefined, name: string]>([
    [{ id: 'u1', sub: 's' }, { id: 'c' }, 'u1'],
    [{ sub: 's', username: 'n' }, undefined, 's'],
    [{ username: 'n', name: 'N' }, undefined, 'n'],
    [{ name: 'N' }, undefined, 'N'],
    [{ id: 7 }, undefined, '7'],
    [{ id: 0 }, undefined, '0'],
    [{ id }, undefined, id.toHexString()],
    [{ id: '', name: 'N' }, undefined, 'N'],
    [{ id: { $ne: 1 } }, { id: 'c' }, 'c'],
    [undefined, { id: 'c', name: 'C' }, 'c'],
    [null, { name: 'C' }, 'C'],
    ['ada', undefined, 'unknown'],
    [undefined, undefined, 'unknown'],
    [{ id: 'x'.repeat(999) }, undefined, 'x'.repeat(200)],
  ])('%j in the context %j is %s', (user, actor, name) => {
    expect(actorName(user, actor && { actor })).toBe(name);
  });
});

describe('an error is answered', () => {
  it.each<[error: unknown, statusCode: number, code: string, message: unknown[]]>([
    [adminError(409, 'in_flight', 'wait'), 409, 'in_flight', ['wait']],
    [
      new InvalidInputError('invalid_cron', 'cron: expected 5 fields', 'cron'),
      400,
      'invalid_cron',
      ['cron: expected 5 fields'],
    ],
    [new BadRequestException(['a', 'b']), 400, 'invalid_input', ['a', 'b']],
    [new ForbiddenException('no'), 403, 'forbidden', ['no']],
    [new NotFoundException('none'), 404, 'not_found', ['none']],
    [new HttpException('slow down', 429), 429, 'too_many_requests', ['slow down']],
    [new HttpException({ reason: 'x' }, 418), 418, 'refused', ['Http Exception']],
    [new HttpException('mongodb://secret', 503), 503, 'internal_error', ['the request failed']],
    [new SidelaneError('two_engines', 'secret'), 500, 'internal_error', ['the request failed']],
    [new CommitUnknownError('secret'), 503, 'commit_unknown', [expect.stringContaining('look before')]],
    [new NoAnswerError('secret', 1), 503, 'unavailable', [expect.stringContaining('cannot be reached')]],
    [new Error('secret'), 500, 'internal_error', ['the request failed']],
    ['secret', 500, 'internal_error', ['the request failed']],
    [undefined, 500, 'internal_error', ['the request failed']],
  ])('%s', (error, statusCode, code, message) => {
    expect(adminErrorBody(error)).toEqual({ statusCode, code, message });
  });

  it('with a bounded number of short texts', () => {
    const { message } = adminErrorBody(
      adminError(
        400,
        'x',
        Array.from({ length: 99 }, () => 'y'.repeat(999)),
      ),
    );
    expect([message.length, message[0]!.length]).toEqual([20, 300]);
  });
});

describe('a cursor', () => {
  it('of an id comes back as it was', () => {
    const id = new mongoose.Types.ObjectId();
    expect(readIdCursor(idCursor(id))?.equals(id)).toBe(true);
    expect(readIdCursor(undefined)).toBeUndefined();
  });

  it('of a key comes back as it was, whatever the key', () => {
    const text = fc
      .string({ minLength: 1, maxLength: 500, unit: 'grapheme' })
      .filter((s) => s.length <= 500 && !s.includes('\0'));
    fc.assert(
      fc.property(text, fc.nat(4096), text, (target, partition, order_key) => {
        const place = { target, partition, order_key };
        expect(readKeyCursor(keyCursor(place))).toEqual(place);
      }),
    );
  });

  it('of the longest texts is no longer than what a request may carry', () => {
    for (const unit of ['\u0001', '\uffff', '"', '\ud83d\ude00']) {
      const text = unit.repeat(500 / unit.length);
      const cursor = keyCursor({ target: text, partition: Number.MAX_SAFE_INTEGER, order_key: text });
      expect(cursor.length).toBeLessThanOrEqual(MAX_CURSOR_CHARS);
    }
  });

  it('that nobody made is refused', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 60 }), (text) => {
        for (const read of [readIdCursor, readKeyCursor]) {
          let code: string | undefined;
          try {
            read(text);
          } catch (error) {
            code = (error as { code?: string }).code;
          }
          expect([undefined, 'invalid_cursor']).toContain(code);
        }
      }),
    );
  });
});
