/** When targets rest because a pod found them down: the word of the database, which all pods follow. */
import { until } from './takeover.js';
import type { World } from './world.js';

export class Rests {
  /** Each finding has a token of its own. */
  private readonly known = new Set<string>();

  private constructor(
    private readonly world: Pick<World, 'connection'>,
    private readonly targets: readonly string[],
  ) {}

  /** Counts what is found from here on. */
  static async of(world: Pick<World, 'connection'>, targets: readonly string[]): Promise<Rests> {
    const rests = new Rests(world, targets);
    await rests.findings();
    return rests;
  }

  /** Resolves when each target was found down so often since the last call, with false if that takes longer than `ms`. */
  async found(times: number, ms: number): Promise<boolean> {
    const counts = new Map(this.targets.map((target) => [target, 0]));
    return until(async () => {
      for (const target of await this.findings()) counts.set(target, counts.get(target)! + 1);
      return [...counts.values()].every((count) => count >= times);
    }, ms);
  }

  /** Resolves when none of the targets rests. */
  over(ms: number): Promise<boolean> {
    return until(async () => (await this.paused()).length === 0, ms);
  }

  /** Targets with a finding that was not seen before. */
  private async findings(): Promise<string[]> {
    const found = (await this.paused()).filter(({ token }) => !this.known.has(token));
    for (const { token } of found) this.known.add(token);
    return found.map(({ target }) => target);
  }

  private async paused(): Promise<{ target: string; token: string }[]> {
    const rows = await this.world.connection
      .collection('job_targets')
      .find({ state: 'paused', by: 'engine' })
      .toArray();
    const all = rows.map((row) => ({ target: String(row._id), token: String(row['token']) }));
    return all.filter(({ target }) => this.targets.includes(target));
  }
}
