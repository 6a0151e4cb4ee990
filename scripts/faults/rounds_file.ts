// Reports of rounds in a file, one JSON object a line, so that a run of hours can be interrupted and taken up again.
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import type { RoundReport } from '../../test/faults/bench/scenario.types.js';

export class RoundsFile {
  readonly reports: RoundReport[] = [];

  constructor(private readonly path: string | undefined) {
    if (path === undefined || !existsSync(path)) return;
    const text = readFileSync(path, 'utf8');
    const whole = text.slice(0, text.lastIndexOf('\n') + 1);
    // A last line that was cut short is a round that is run again; the next one must not be written behind it.
    if (whole.length < text.length) writeFileSync(path, whole);
    for (const line of whole.split('\n').slice(0, -1)) this.reports.push(JSON.parse(line) as RoundReport);
  }

  has({ scenario, seed, length }: Pick<RoundReport, 'scenario' | 'seed' | 'length'>): boolean {
    return this.reports.some((each) => each.scenario === scenario && each.seed === seed && each.length === length);
  }

  add(report: RoundReport): void {
    this.reports.push(report);
    if (this.path !== undefined) appendFileSync(this.path, `${JSON.stringify(report)}\n`);
  }
}
