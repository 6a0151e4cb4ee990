import { describe, expect, it } from '@jest/globals';
import { changesOf } from './bench/zone_changes.js';

const iso = (at: number): string => new Date(at).toISOString().slice(0, 19);

describe('the changes of a zone', () => {
  it.each([
    ['Europe/Berlin', '2028-03-26T01:00:00', '2028-03-26T02:00:00', '2028-03-26T03:00:00'],
    ['Australia/Lord_Howe', '2028-04-01T15:00:00', '2028-04-02T02:00:00', '2028-04-02T01:30:00'],
    ['America/Santiago', '2028-04-02T03:00:00', '2028-04-02T00:00:00', '2028-04-01T23:00:00'],
  ])('of %s: the first one of 2028', (zone, at, before, after) => {
    const changes = changesOf(zone, 2028);
    expect(changes).toHaveLength(2);
    const [first] = changes;
    expect([first!.at, first!.before, first!.after].map(iso)).toEqual([at, before, after]);
  });

  it('of a zone without any: none', () => {
    expect(changesOf('Asia/Bangkok', 2028)).toEqual([]);
  });
});
