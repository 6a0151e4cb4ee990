// A bench's result for people: cases, then ratios with what they must reach. Pure.
import type { BenchResult } from './measure.js';

export function asText({ bench, cases, ratios, notes }: BenchResult): string {
  const lines = cases.map(({ name, value, unit, spread }) => [name, `${value} ${unit}`, range(spread), '']);
  const judged = ratios.map(({ name, value, spread, must, reached }) => [
    name,
    String(value),
    range(spread),
    must === '' ? '' : `must be ${must}: ${reached ? 'reached' : 'NOT REACHED'}`,
  ]);
  return [`== ${bench}`, ...table(lines), '-- ratios', ...table(judged), ...notes.map((note) => `   ${note}`)].join(
    '\n',
  );
}

const range = ([from, to]: readonly [number, number]): string => `(${from} .. ${to})`;

function table(rows: string[][]): string[] {
  const widths = [0, 1, 2].map((column) => Math.max(0, ...rows.map((row) => row[column]!.length)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  );
}
