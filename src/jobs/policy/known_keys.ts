/**
 * Whether several rows with given keys are worth a look for known ones before they are inserted in a transaction. The look
 * costs a round trip, a known key without it the transaction's attempt. So where none was met for a while none is expected,
 * and one that is met all the same brings the looks back. Per target; wrong guesses cost time, never a row. Pure.
 */

/** Batches in a row without a known key. So at most one attempt in so many is wasted. */
const NONE_MET = 50;

export class KnownKeys {
  private readonly without = new Map<string, number>();

  expected(targets: ReadonlySet<string>): boolean {
    for (const target of targets) if ((this.without.get(target) ?? 0) < NONE_MET) return true;
    return false;
  }

  met(targets: ReadonlySet<string>): void {
    for (const target of targets) this.without.set(target, 0);
  }

  metNone(targets: ReadonlySet<string>): void {
    for (const target of targets) this.without.set(target, (this.without.get(target) ?? 0) + 1);
  }
}
