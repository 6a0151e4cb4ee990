// Simulated time: what happens next, in the order of its time and, at the same time, of its making. And chance with a
// seed. Nothing here knows the clock of this machine, so one seed is one history.

/** A number in [0, 1). */
export type Chance = () => number;

/** mulberry32: small, even enough for jitter and shuffles, the same on every machine. */
export function seededChance(seed: number): Chance {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Happening {
  readonly at: number;
  readonly turn: number;
  readonly run: () => void;
}

const sooner = (a: Happening, b: Happening): boolean => a.at < b.at || (a.at === b.at && a.turn < b.turn);

/** A binary heap of what is to come. */
export class EventQueue {
  /** Simulated milliseconds since the beginning. */
  now = 0;
  private readonly heap: Happening[] = [];
  private turns = 0;

  after(ms: number, run: () => void): void {
    const added: Happening = { at: this.now + ms, turn: this.turns++, run };
    let place = this.heap.push(added) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!sooner(added, this.heap[parent]!)) break;
      this.heap[place] = this.heap[parent]!;
      place = parent;
    }
    this.heap[place] = added;
  }

  /** Runs everything that happens up to `until`, what is added meanwhile included. */
  runUntil(until: number): void {
    while (this.heap.length > 0 && this.heap[0]!.at <= until) {
      const next = this.pop();
      this.now = next.at;
      next.run();
    }
    this.now = until;
  }

  private pop(): Happening {
    const first = this.heap[0]!;
    const last = this.heap.pop()!;
    if (this.heap.length > 0) this.sink(last);
    return first;
  }

  private sink(moved: Happening): void {
    const { heap } = this;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && sooner(heap[child + 1]!, heap[child]!)) child++;
      if (!sooner(heap[child]!, moved)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = moved;
  }
}
