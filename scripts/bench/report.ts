// A bench's result for people, on a terminal and as tables for docs/performance.md. Pure.
import type { BenchResult, Ratio } from './measure.js';

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

/** Tables as docs/performance.md shows them, so that no number is copied by hand. */
export function asMarkdown({ bench, cases, ratios, notes }: BenchResult): string {
  return [
    `### ${bench}`,
    '',
    '| ratio | median | rounds | must be | |',
    '|---|---|---|---|---|',
    ...ratios.map((ratio) => row([ratio.name, `**${ratio.value}**`, span(ratio.spread), ratio.must, verdict(ratio)])),
    '',
    '| case | median | unit | rounds |',
    '|---|---|---|---|',
    ...cases.map(({ name, value, unit, spread }) => row([name, String(value), unit, span(spread)])),
    '',
    ...notes.map((note) => `- ${note}`),
  ].join('\n');
}

const row = (cells: string[]): string => `| ${cells.join(' | ')} |`;
const span = ([from, to]: readonly [number, number]): string => `${from} .. ${to}`;
const verdict = ({ reached }: Ratio): string => (reached === null ? '' : reached ? 'reached' : 'missed');

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
