import { describe, expect, it } from '@jest/globals';
import { GroupCommit } from '../../src/common/utils/group_commit.js';
import { FakeClock } from '../support/fake_clock.js';

/** Writes that end when the test says so. */
class Writes {
  readonly groups: string[][] = [];
  private readonly ends: { resolve(): void; reject(error: Error): void }[] = [];
  private told = (): void => undefined;

  readonly write = async (items: readonly string[]): Promise<string[]> => {
    this.groups.push([...items]);
    this.told();
    await new Promise<void>((resolve, reject) => this.ends.push({ resolve, reject }));
    return items.map((item) => `${item}!`);
  };

  async begun(count: number): Promise<void> {
    while (this.groups.length < count) await new Promise<void>((resolve) => (this.told = resolve));
  }

  end(index: number, error?: Error): void {
    if (error) this.ends[index]!.reject(error);
    else this.ends[index]!.resolve();
  }
}

describe('group commit', () => {
  it('writes what is submitted in one turn at once, and what comes meanwhile together in the next write', async () => {
    const writes = new Writes();
    const group = new GroupCommit({ write: writes.write });
    const first = [group.submit('a'), group.submit('b')];
    await writes.begun(1);
    const second = [group.submit('c'), group.submit('d'), group.submit('e')];
    writes.end(0);
    expect(await Promise.all(first)).toEqual(['a!', 'b!']);
    await writes.begun(2);
    writes.end(1);
    expect(await Promise.all(second)).toEqual(['c!', 'd!', 'e!']);
    expect(writes.groups).toEqual([
      ['a', 'b'],
      ['c', 'd', 'e'],
    ]);
  });

  it('takes no more than its most, in the order of arrival', async () => {
    const groups: string[][] = [];
    const group = new GroupCommit<string, void>({
      most: 2,
      write: async (items) => {
        groups.push([...items]);
        return items.map(() => undefined);
      },
    });
    await Promise.all(['a', 'b', 'c', 'd', 'e'].map((item) => group.submit(item)));
    expect(groups).toEqual([['a', 'b'], ['c', 'd'], ['e']]);
  });

  it('throws a failure to its own group only, and goes on', async () => {
    const writes = new Writes();
    const group = new GroupCommit({ write: writes.write });
    const failing = Promise.allSettled([group.submit('a'), group.submit('b')]);
    await writes.begun(1);
    const next = group.submit('c');
    writes.end(0, new Error('gone'));
    expect((await failing).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    await writes.begun(2);
    writes.end(1);
    expect(await next).toBe('c!');
  });

  it('lets the next group out beside a write that hangs', async () => {
    const clock = new FakeClock();
    const writes = new Writes();
    const group = new GroupCommit({ write: writes.write, patience: { clock, ms: 50 } });
    const hanging = group.submit('a');
    await writes.begun(1);
    const next = group.submit('b');
    await clock.armed(50);
    clock.advance(50);
    await writes.begun(2);
    writes.end(1);
    expect(await next).toBe('b!');
    writes.end(0);
    expect(await hanging).toBe('a!');
  });
});
