/**
 * Group commit: what is submitted in one turn of the event loop, or while a write is under way, goes out together in the
 * next write. So nothing waits for a timer, and many small writers share one command.
 *
 * A write that takes unusually long (a connection that hangs) must hold up only what it carries: after `patience_ms` the
 * next group goes out beside it.
 */
import type { Clock } from '../ports/clock.js';

interface Waiting<Item, Result> {
  readonly item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

export interface GroupCommitOptions<Item, Result> {
  /** Answers one result per item, in their order. What it throws is thrown to every one of the group. */
  write(items: readonly Item[]): Promise<readonly Result[]>;
  /** Items of one write. Default: all that wait. */
  readonly most?: number;
  /** Without it the next group always waits for the write under way. */
  readonly patience?: { readonly clock: Clock; readonly ms: number };
}

export class GroupCommit<Item, Result> {
  private waiting: Waiting<Item, Result>[] = [];
  private pumping = false;

  constructor(private readonly options: GroupCommitOptions<Item, Result>) {}

  submit(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.waiting.push({ item, resolve, reject });
      if (!this.pumping) void this.pump();
    });
  }

  private async pump(): Promise<void> {
    this.pumping = true;
    await new Promise((resolve) => setImmediate(resolve));
    while (this.waiting.length > 0) {
      const group = this.waiting.splice(0, this.options.most ?? this.waiting.length);
      await this.patiently(this.writeGroup(group));
    }
    this.pumping = false;
  }

  private async writeGroup(group: readonly Waiting<Item, Result>[]): Promise<void> {
    try {
      const results = await this.options.write(group.map(({ item }) => item));
      group.forEach(({ resolve }, index) => resolve(results[index]!));
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }

  private patiently(write: Promise<void>): Promise<void> {
    const { patience } = this.options;
    if (!patience) return write;
    return new Promise((resolve) => {
      const timer = patience.clock.after(patience.ms, resolve);
      void write.then(() => {
        timer.cancel();
        resolve();
      });
    });
  }
}
