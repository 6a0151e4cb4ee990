// Reports of rounds in a file, one JSON object a line, so that a run of hours can be interrupted and taken up again.
// What other code did says nothing about this code: its rounds stay in the file and are not counted.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { RoundReport } from '../../test/faults/bench/scenario.types.js';

export class RoundsFile {
  /** Of this code. */
  readonly reports: RoundReport[] = [];
  readonly ofOtherCode: number = 0;

  constructor(
    private readonly path: string | undefined,
    private readonly code: string,
  ) {
    if (path === undefined || !existsSync(path)) return;
    const text = readFileSync(path, 'utf8');
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    // A last line that was cut short is a round that is run again; the next one must not be written behind it.
    if (whole.length < text.length) writeFileSync(path, whole);
    const all = whole
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line) as RoundReport);
    this.reports.push(...all.filter((report) => report.code === this.code));
    this.ofOtherCode = all.length - this.reports.length;
  }

  find({ scenario, seed, length }: Pick<RoundReport, 'scenario' | 'seed' | 'length'>): RoundReport | undefined {
    return this.reports.find((each) => each.scenario === scenario && each.seed === seed && each.length === length);
  }

  add(report: RoundReport): void {
    this.reports.push(report);
    if (this.path !== undefined) appendFileSync(this.path, `${JSON.stringify(report)}\n`);
  }
}
