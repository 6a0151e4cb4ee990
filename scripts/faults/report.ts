// What rounds of the fault bench are told as: a line each, and a table of many. Pure.
import type { RoundReport } from '../../test/faults/bench/scenario.types.js';

export function asText({ scenario, seed, violations, schedule: _, ...figures }: RoundReport): string {
  const parts = Object.entries(figures).map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`);
  const broken = violations.map(({ invariant, text }) => `  BROKEN ${invariant}: ${text}`);
  return [`${scenario} seed ${seed}: ${parts.join(', ')}`, ...broken].join('\n');
}

const sum = (reports: readonly RoundReport[], of: (report: RoundReport) => number): number =>
  reports.reduce((total, report) => total + of(report), 0);

/** In seconds; a file may hold reports from before a figure was told. */
function longest(reports: readonly RoundReport[], of: (report: Partial<RoundReport>) => number | undefined): string {
  const told = reports.flatMap((report) => of(report) ?? []);
  return told.length === 0 ? '' : `${(Math.max(...told) / 1000).toFixed(1)} s`;
}

const COLUMNS: readonly (readonly [string, (reports: readonly RoundReport[]) => string | number])[] = [
  ['rounds', (reports) => reports.length],
  ['rows', (reports) => sum(reports, ({ rows }) => rows)],
  ['runs', (reports) => sum(reports, ({ runs }) => runs)],
  ['faults', (reports) => sum(reports, ({ faults }) => faults)],
  ['lost', (reports) => sum(reports, ({ lost }) => lost)],
  ['doubled', (reports) => sum(reports, ({ doubled }) => doubled)],
  ['out of order', (reports) => sum(reports, ({ out_of_order }) => out_of_order)],
  ['ran again', (reports) => sum(reports, ({ repeated }) => repeated)],
  ['drained', (reports) => longest(reports, ({ drained_ms }) => drained_ms)],
  ['longest stall', (reports) => longest(reports, ({ longest_stall_ms }) => longest_stall_ms)],
  ['broken', (reports) => sum(reports, ({ violations }) => violations.length)],
];

/** Markdown: a line per scenario in the given order, and one for all. `leftOut`: what could not be tried, and why. */
export function asTable(
  reports: readonly RoundReport[],
  names: readonly string[],
  leftOut: ReadonlyMap<string, string> = new Map(),
): string {
  const cells = (name: string, of: readonly RoundReport[]): string[] => [
    name,
    ...COLUMNS.map(([, value]) => String(value(of))),
  ];
  const line = (parts: readonly string[]): string => `| ${parts.join(' | ')} |`;
  const rows = names
    .map((name) => ({ name, of: reports.filter(({ scenario }) => scenario === name) }))
    .filter(({ name, of }) => of.length > 0 || leftOut.has(name))
    .map(({ name, of }) => {
      const reason = leftOut.get(name);
      if (reason === undefined) return line(cells(`\`${name}\``, of));
      return line([`\`${name}\``, `left out: ${reason}`, ...COLUMNS.slice(1).map(() => '')]);
    });
  const head = ['scenario', ...COLUMNS.map(([name]) => name)];
  return [line(head), line(head.map(() => '---')), ...rows, line(cells('all', reports))].join('\n');
}
