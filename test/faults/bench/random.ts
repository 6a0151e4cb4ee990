/** Chance that can be repeated: one seed, one sequence. Never reads a clock, so a schedule of faults depends on its seed alone. */
export class SeededRandom {
  private state: number;

  constructor(seed: number | string) {
    this.state = typeof seed === 'number' ? seed >>> 0 : hash(seed);
  }

  /** From 0 up to, not including, 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number, both ends included. */
  int(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(list: readonly T[]): T {
    return list[this.int(0, list.length - 1)]!;
  }

  shuffle<T>(list: readonly T[]): T[] {
    return list
      .map((value) => ({ value, at: this.next() }))
      .sort((a, b) => a.at - b.at)
      .map(({ value }) => value);
  }
}

/** Deals values in a random order, all of them before any comes again: none is left out by chance. */
export class Deck<T> {
  private left: T[] = [];

  constructor(
    private readonly random: SeededRandom,
    private readonly all: readonly T[],
  ) {}

  deal(): T {
    if (this.left.length === 0) this.left = this.random.shuffle(this.all);
    return this.left.pop()!;
  }

  /** Dealt, but not made use of: dealt next. */
  putBack(values: readonly T[]): void {
    this.left.push(...values);
  }
}

function hash(text: string): number {
  let value = 2166136261;
  for (const char of text) value = Math.imul(value ^ char.codePointAt(0)!, 16777619);
  return value >>> 0;
}
