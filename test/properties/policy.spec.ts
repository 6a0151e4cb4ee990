/** Rules that must hold for every input, not only for those a table names. */
import { describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { planPage, takeBatch, type OrderedRow } from '../../src/jobs/policy/ordering.js';
import { fairShare, partitionOf } from '../../src/jobs/policy/partition.js';
import { toJsonValue } from '../../src/jobs/policy/payload.js';
import { retryDelayMs } from '../../src/jobs/policy/retry.js';

const NOW = new Date(1_000);

interface Row extends OrderedRow {
  version: number;
}

/** A page as the ordered read gives it: sorted by key and version. */
const pages = fc
  .array(
    fc.record({
      order_key: fc.constantFrom('a', 'b', 'c', 'd'),
      version: fc.nat(20),
      next_run_at: fc.constantFrom(new Date(0), new Date(1_000), new Date(2_000)),
      crashes: fc.constantFrom(0, 0, 0, 1),
      bytes: fc.integer({ min: 1, max: 50 }),
    }),
    { maxLength: 40 },
  )
  .map((rows): Row[] => rows.sort((x, y) => x.order_key.localeCompare(y.order_key) || x.version - y.version));

describe('partitions', () => {
  it('a key keeps its partition: pinned vectors', () => {
    expect(['order-1', 'order-2', 'żółw', ''].map((key) => partitionOf(key, 64))).toEqual([4, 14, 1, 62]);
  });

  it('every key has a partition in range', () => {
    fc.assert(
      fc.property(fc.string(), fc.integer({ min: 1, max: 4096 }), (key, count) => {
        const partition = partitionOf(key, count);
        return Number.isInteger(partition) && partition >= 0 && partition < count;
      }),
    );
  });

  it('shares add up to the total and differ by one at most', () => {
    const pods = fc.uniqueArray(fc.string({ minLength: 1 }), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 200 }), pods, (total, live) => {
        const shares = live.map((pod) => fairShare(total, live, pod));
        expect(shares.reduce((sum, share) => sum + share, 0)).toBe(total);
        expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
      }),
    );
  });
});

describe('retry delays', () => {
  it('are never shorter than promised, nor longer than the jitter allows', () => {
    const policies = fc.record({
      delays_ms: fc.array(fc.nat(10 ** 9), { minLength: 1, maxLength: 8 }),
      jitter: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(
        policies,
        fc.integer({ min: 1, max: 20 }),
        fc.double({ min: 0, max: 0.999, noNaN: true }),
        (policy, attempts, random) => {
          const promised = policy.delays_ms[Math.min(attempts, policy.delays_ms.length) - 1]!;
          const delay = retryDelayMs(attempts, policy, random);
          expect(delay).toBeGreaterThanOrEqual(promised);
          expect(delay).toBeLessThanOrEqual(Math.ceil(promised * (1 + policy.jitter)));
        },
      ),
    );
  });
});

describe('order', () => {
  it('a page runs each key from its head up to the first row that waits, and nothing behind it', () => {
    fc.assert(
      fc.property(pages, fc.boolean(), (page, full) => {
        const { sequences, held } = planPage(page, NOW, full);
        for (const key of ['a', 'b', 'c', 'd']) {
          const rows = page.filter((row) => row.order_key === key);
          const waits = rows.findIndex((row) => row.next_run_at > NOW);
          const expected = waits < 0 ? rows : rows.slice(0, waits);
          expect(sequences.filter((sequence) => sequence[0]!.order_key === key).flat()).toEqual(expected);
          expect(held.some(({ head }) => head === rows[waits])).toBe(waits >= 0);
        }
      }),
    );
  });

  it('batches lose no row, keep the order of each key, respect their limits, and run suspects alone', () => {
    fc.assert(
      fc.property(
        pages,
        fc.integer({ min: 1, max: 10 }),
        fc.integer({ min: 1, max: 100 }),
        (page, max_rows, max_bytes) => {
          let rest: readonly (readonly Row[])[] = planPage(page, NOW, false).sequences;
          const all = rest.flat();
          const ran: Row[] = [];
          while (rest.length > 0) {
            const next = takeBatch(rest, { max_rows, max_bytes }, (row) => row.crashes > 0);
            const batch = next.batch.flat();
            expect(batch.length).toBeGreaterThan(0);
            expect(batch.length).toBeLessThanOrEqual(max_rows);
            if (batch.length > 1) {
              expect(batch.reduce((sum, row) => sum + row.bytes, 0)).toBeLessThanOrEqual(max_bytes);
              expect(batch.every((row) => row.crashes === 0)).toBe(true);
            }
            ran.push(...batch);
            rest = next.rest;
          }
          expect(ran).toHaveLength(all.length);
          for (const key of ['a', 'b', 'c', 'd']) {
            expect(ran.filter((row) => row.order_key === key)).toEqual(all.filter((row) => row.order_key === key));
          }
        },
      ),
    );
  });
});

describe('payloads', () => {
  it('a JSON value is stored as JSON.stringify would send it', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const names = JSON.stringify(value);
        fc.pre(!names.includes('__proto__') && !names.includes('_bsontype') && !names.includes('\\u0000'));
        expect(toJsonValue(value, 'payload')).toEqual(JSON.parse(names));
      }),
    );
  });
});
