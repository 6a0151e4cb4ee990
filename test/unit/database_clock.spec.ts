/** Due times follow the database's clock, however wrong the pod's own clock is. */
import { describe, expect, it } from '@jest/globals';
import { DatabaseClock } from '../../src/common/ports/clock.js';

const NOON = Date.UTC(2030, 5, 1, 12);
const HOUR = 3_600_000;

/** A pod and a database in one simulated world: real time passes by `pass`, the pod's wall clock may be set at will. */
class World {
  private elapsed = 0;
  wallError = 0;
  requestMs = 0;
  answerMs = 0;
  asked = 0;
  failure: Error | undefined;
  /** How long the next answers take, the first ones first; then `answerMs`. */
  stalls: number[] = [];

  readonly clock = new DatabaseClock(
    async () => {
      this.asked++;
      this.pass(this.requestMs);
      const answer = new Date(this.databaseMs);
      this.pass(this.stalls.shift() ?? this.answerMs);
      if (this.failure) throw this.failure;
      return answer;
    },
    { wall: () => this.databaseMs + this.wallError, monotonic: () => 5_000.25 + this.elapsed },
  );

  get databaseMs(): number {
    return NOON + this.elapsed;
  }

  pass(ms: number): void {
    this.elapsed += ms;
  }

  /** By how much the clock is ahead of the database, in ms. */
  get error(): number {
    return this.clock.now().getTime() - this.databaseMs;
  }
}

describe('the time of the database', () => {
  it('is taken at the middle of the round trip: even delays leave no error', async () => {
    const world = new World();
    world.requestMs = world.answerMs = 40;
    await world.clock.sync();
    expect(world.error).toBe(0);
  });

  it.each([
    [80, 0, 40],
    [0, 80, -40],
  ])('is off by half the round trip at most (request %d ms, answer %d ms)', async (requestMs, answerMs, error) => {
    const world = new World();
    Object.assign(world, { requestMs, answerMs });
    await world.clock.sync();
    // The pod cannot tell the two ways apart: 40 ms each is its best guess.
    expect(world.error).toBe(error);
  });

  it.each([-5 * HOUR, 7 * HOUR])('is the same on a pod whose wall clock is off by %d ms', async (wallError) => {
    const world = new World();
    world.wallError = wallError;
    await world.clock.sync();
    world.pass(90_000);
    expect(world.clock.now()).toEqual(new Date(NOON + 90_000));
  });

  it('runs on evenly while the wall clock jumps to and fro', async () => {
    const world = new World();
    await world.clock.sync();
    for (const wallError of [HOUR, -HOUR, 0, 24 * HOUR]) {
      world.wallError = wallError;
      world.pass(1_000);
      expect(world.error).toBe(0);
    }
  });

  it('follows a new measurement, and keeps the old one when the measurement fails', async () => {
    const world = new World();
    world.requestMs = 100;
    await world.clock.sync();
    expect(world.error).toBe(50);
    world.failure = new Error('no database');
    await expect(world.clock.sync()).rejects.toThrow('no database');
    expect(world.error).toBe(50);
    world.failure = undefined;
    world.requestMs = 0;
    await world.clock.sync();
    expect(world.error).toBe(0);
    expect(world.asked).toBe(3);
  });

  it.each([[[50_000]], [[50_000, 30_000]]])(
    'is no worse for a pod that stalls before it reads (%j ms)',
    async (stalls) => {
      const world = new World();
      await world.clock.sync();
      world.stalls = [...stalls];
      await world.clock.sync();
      expect(Math.abs(world.error)).toBeLessThanOrEqual(1_000);
      expect(world.asked).toBe(2 + stalls.length);
    },
  );

  it('is kept, and the measurement fails, when no answer comes quickly', async () => {
    const world = new World();
    await world.clock.sync();
    world.answerMs = 2_001;
    await expect(world.clock.sync()).rejects.toThrow('2001 ms for the quickest of 3 answers');
    expect(world.error).toBe(0);
    world.answerMs = 2_000;
    await world.clock.sync();
    expect(world.error).toBe(-1_000);
  });

  it('is the wall clock only until the first answer', async () => {
    const world = new World();
    world.wallError = HOUR;
    expect(world.error).toBe(HOUR);
    await world.clock.sync();
    expect(world.error).toBe(0);
  });

  it('comes in whole milliseconds', async () => {
    const world = new World();
    world.requestMs = 1;
    await world.clock.sync();
    world.pass(0.4);
    expect(Number.isInteger(world.clock.now().getTime())).toBe(true);
  });
});

describe('the monotonic time', () => {
  it('is no business of the database nor of the wall clock', async () => {
    const world = new World();
    const before = world.clock.monotonic();
    world.wallError = -HOUR;
    await world.clock.sync();
    world.pass(250);
    expect(world.clock.monotonic() - before).toBe(250);
  });
});

describe('a timer', () => {
  const clock = new DatabaseClock(async () => new Date(NOON));

  it('fires, a cancelled one does not, and one of fifty days does not fire at once', async () => {
    const fired: string[] = [];
    const far = clock.after(50 * 24 * HOUR, () => fired.push('far'));
    clock.after(1, () => fired.push('cancelled')).cancel();
    // The engine's timers do not keep a process alive; this one does until ours has fired.
    const alive = setInterval(() => undefined, 1_000);
    await new Promise<void>((resolve) => clock.after(20, resolve));
    clearInterval(alive);
    far.cancel();
    expect(fired).toEqual([]);
  });
});
