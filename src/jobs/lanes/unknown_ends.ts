/**
 * Rows whose runs ended unknown, so that one row cannot keep its target paused: an at-least-once row that ends unknown
 * again, while its target has served others since, is charged like an answered failure. This pod's memory: losing it
 * only costs one more pause.
 */

/** Rows remembered; the oldest are forgotten first. */
const MAX_REMEMBERED = 1000;

export class UnknownEnds {
  private readonly answers = new Map<string, number>();
  /** Row id to its target's answers at the time its run ended unknown. */
  private readonly ends = new Map<string, number>();

  answered(target: string): void {
    this.answers.set(target, (this.answers.get(target) ?? 0) + 1);
  }

  /** Remembers the end; true when the row had ended unknown before and the target has answered since. */
  again(target: string, row: string): boolean {
    const answers = this.answers.get(target) ?? 0;
    const before = this.ends.get(row);
    this.ends.delete(row);
    this.ends.set(row, answers);
    if (this.ends.size > MAX_REMEMBERED) this.ends.delete(this.ends.keys().next().value!);
    return before !== undefined && answers > before;
  }

  /** Nothing is remembered: nothing to forget, as nearly always. */
  get empty(): boolean {
    return this.ends.size === 0;
  }

  forget(row: string): void {
    this.ends.delete(row);
  }
}
