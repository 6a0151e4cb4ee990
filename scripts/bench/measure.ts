// How every figure is made: sides take turns (A B C, A B C, …) on the same servers, so that whatever else the machine
// does hits all of them; a ratio is taken within each round, and its median over the rounds is told with its spread.
// Never an absolute promise: rates are printed to be compared with each other, in this run only.

/** What one round of one side found: a rate (or a time, a size), and counts beside it. */
export interface Sample {
  value: number;
  counts?: Readonly<Record<string, number>>;
}

export interface Side {
  name: string;
  /** Of `value`: `rows/s`, `ms`, … */
  unit: string;
  /** Prepares untimed, measures once. */
  round(): Promise<Sample>;
}

export interface Rounds {
  warmups: number;
  rounds: number;
}

export interface Case {
  name: string;
  value: number;
  unit: string;
  /** Smallest and largest of the rounds. */
  spread: readonly [number, number];
}

export interface Ratio {
  name: string;
  value: number;
  spread: readonly [number, number];
  /** `>= 0.7`, `<= 0.05`; empty where nothing is demanded. */
  must: string;
  /** Null where nothing is demanded. */
  reached: boolean | null;
}

export interface BenchResult {
  bench: string;
  cases: Case[];
  ratios: Ratio[];
  notes: string[];
}

/** All rounds of one side, in order. */
export interface Measured {
  name: string;
  unit: string;
  values: number[];
  counts: Record<string, number[]>;
}

export async function interleave(
  sides: readonly Side[],
  { warmups, rounds }: Rounds,
  say: (line: string) => void = () => undefined,
): Promise<Measured[]> {
  const measured = sides.map(({ name, unit }): Measured => ({ name, unit, values: [], counts: {} }));
  for (let round = -warmups; round < rounds; round++) {
    for (const [index, side] of sides.entries()) {
      const sample = await side.round();
      say(`  ${round < 0 ? 'warm-up' : `round ${round + 1}`}  ${side.name}: ${tidy(sample.value)} ${side.unit}`);
      if (round >= 0) record(measured[index]!, sample);
    }
  }
  return measured;
}

function record(measured: Measured, { value, counts = {} }: Sample): void {
  measured.values.push(value);
  for (const [name, count] of Object.entries(counts)) (measured.counts[name] ??= []).push(count);
}

export function median(values: readonly number[]): number {
  if (values.length === 0) return NaN;
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** The value that `percent` of all values do not exceed. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length, Math.max(1, Math.ceil((percent / 100) * sorted.length))) - 1] ?? NaN;
}

export function spreadOf(values: readonly number[]): readonly [number, number] {
  return [tidy(Math.min(...values)), tidy(Math.max(...values))];
}

/** The rate of a side, and one case per count that stands beside it. */
export function casesOf({ name, unit, values, counts }: Measured): Case[] {
  const beside = Object.entries(counts).map(([count, each]) => caseOf(`${name}: ${count}`, count, each));
  return [caseOf(name, unit, values), ...beside];
}

export function caseOf(name: string, unit: string, values: readonly number[]): Case {
  return { name, value: tidy(median(values)), unit, spread: spreadOf(values) };
}

/** How often `over` does what `under` does once, round by round. */
export function ratioOf(name: string, over: readonly number[], under: readonly number[], least?: number): Ratio {
  const quotients = over.map((value, round) => value / under[round]!);
  return judged(name, quotients, least === undefined ? undefined : { least });
}

/** A figure that must not exceed a bound. */
export function boundOf(name: string, values: readonly number[], most: number): Ratio {
  return judged(name, values, { most });
}

export function judged(name: string, values: readonly number[], must?: { least: number } | { most: number }): Ratio {
  const value = median(values);
  const shown = { name, value: tidy(value), spread: spreadOf(values) };
  if (!must) return { ...shown, must: '', reached: null };
  if ('least' in must) return { ...shown, must: `>= ${must.least}`, reached: value >= must.least };
  return { ...shown, must: `<= ${must.most}`, reached: value <= must.most };
}

/** As many digits as a noisy figure deserves. */
export function tidy(value: number): number {
  if (!Number.isFinite(value)) return value;
  return Math.abs(value) >= 100 ? Math.round(value) : Number(value.toPrecision(3));
}
