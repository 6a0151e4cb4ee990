import { describe, expect, it } from '@jest/globals';
import { UnknownEnds } from '../../src/jobs/lanes/unknown_ends.js';

describe('a row whose runs end unknown', () => {
  it('is at fault when its target has answered others in between, and not before', () => {
    const ends = new UnknownEnds();
    expect(ends.again('t', 'row')).toBe(false);
    expect(ends.again('t', 'row')).toBe(false);
    ends.answered('other');
    expect(ends.again('t', 'row')).toBe(false);
    ends.answered('t');
    expect(ends.again('t', 'row')).toBe(true);
    expect(ends.again('t', 'row')).toBe(false);
  });

  it('is forgotten once it ended well', () => {
    const ends = new UnknownEnds();
    ends.again('t', 'row');
    expect(ends.empty).toBe(false);
    ends.forget('row');
    expect(ends.empty).toBe(true);
    ends.answered('t');
    expect(ends.again('t', 'row')).toBe(false);
  });

  it('is one of a thousand that are remembered: the oldest is forgotten first', () => {
    const ends = new UnknownEnds();
    for (let row = 0; row <= 1000; row++) ends.again('t', `row ${row}`);
    ends.answered('t');
    expect(ends.again('t', 'row 1')).toBe(true);
    expect(ends.again('t', 'row 0')).toBe(false);
  });
});
