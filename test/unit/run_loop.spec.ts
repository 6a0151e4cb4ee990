/** A background loop: nothing that its step does may end it, and only `stop` does. */
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import fc from 'fast-check';
import { RunLoop } from '../../src/common/run_loop.js';
import { FakeClock } from '../support/fake_clock.js';

/** One round of the loop, held open until the test ends it. */
class Round {
  end!: (waitMs: number) => void;
  fail!: (error: unknown) => void;
  readonly result = new Promise<number>((resolve, reject) => {
    this.end = resolve;
    this.fail = reject;
  });
}

/** Steps that the test waits for and ends one by one. */
class Steps {
  started = 0;
  private readonly rounds: Round[] = [];
  private readonly waiting: ((round: Round) => void)[] = [];

  readonly step = (): Promise<number> => {
    this.started++;
    const round = new Round();
    const waiter = this.waiting.shift();
    if (waiter) waiter(round);
    else this.rounds.push(round);
    return round.result;
  };

  next(): Promise<Round> {
    const round = this.rounds.shift();
    return round ? Promise.resolve(round) : new Promise((resolve) => this.waiting.push(resolve));
  }
}

/** Lets everything run that waits for nothing but promises. */
const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('a run loop', () => {
  let clock: FakeClock;
  let steps: Steps;
  let errors: unknown[];
  let loop: RunLoop;

  beforeEach(() => {
    clock = new FakeClock();
    steps = new Steps();
    errors = [];
    loop = new RunLoop({
      name: 'test',
      clock,
      step: steps.step,
      errorDelayMs: 500,
      onError: (name, error) => void errors.push([name, error]),
    });
  });
  // Every test leaves its loop between two rounds, or ended: a loop that cannot be stopped there fails it.
  afterEach(() => loop.stop());

  it('runs its first round at once and the next one after as long as the step asked, not earlier', async () => {
    loop.start();
    (await steps.next()).end(1_000);
    await settle();
    clock.advance(999);
    await settle();
    expect(steps.started).toBe(1);
    clock.advance(1);
    (await steps.next()).end(1_000);
    await settle();
    expect(steps.started).toBe(2);
  });

  it('survives a step that fails: it is told, and the next round comes after the error delay', async () => {
    const failure = new Error('no database');
    loop.start();
    for (let times = 1; times <= 3; times++) {
      (await steps.next()).fail(failure);
      await settle();
      expect(errors).toHaveLength(times);
      clock.advance(499);
      await settle();
      expect(steps.started).toBe(times);
      clock.advance(1);
    }
    (await steps.next()).end(1_000);
    await settle();
    expect(errors[0]).toEqual(['test', failure]);
  });

  it('survives a step that throws before it returns a promise, and one that throws no Error', async () => {
    const thrown: unknown[] = [new Error('at once'), undefined];
    const throwing = new RunLoop({
      name: 'throwing',
      clock,
      step: () => {
        if (thrown.length > 0) throw thrown.shift();
        return steps.step();
      },
      errorDelayMs: 500,
      onError: (_name, error) => void errors.push(error),
    });
    throwing.start();
    await settle();
    clock.advance(500);
    await settle();
    clock.advance(500);
    (await steps.next()).end(1_000);
    await settle();
    expect(errors).toEqual([new Error('at once'), undefined]);
    await throwing.stop();
  });

  it('a hint cuts the wait short, and the timer of that wait starts no round of its own', async () => {
    loop.start();
    (await steps.next()).end(10_000);
    await settle();
    loop.wake();
    (await steps.next()).end(60_000);
    await settle();
    clock.advance(10_000);
    await settle();
    expect(steps.started).toBe(2);
  });

  it('hints during a round make one more follow at once', async () => {
    loop.start();
    const first = await steps.next();
    loop.wake();
    loop.wake();
    first.end(10_000);
    (await steps.next()).end(10_000);
    await settle();
    expect(steps.started).toBe(2);
  });

  it('a hint during a round that fails is not lost either', async () => {
    loop.start();
    const first = await steps.next();
    loop.wake();
    first.fail(new Error('no database'));
    (await steps.next()).end(10_000);
    await settle();
    expect(errors).toHaveLength(1);
  });

  it('stop waits for the round under way, and no other starts even when hinted', async () => {
    loop.start();
    const round = await steps.next();
    loop.wake();
    let stopped = false;
    const stopping = loop.stop().then(() => (stopped = true));
    loop.wake();
    await settle();
    expect(stopped).toBe(false);
    round.end(0);
    await stopping;
    clock.advance(60_000);
    await settle();
    expect(steps.started).toBe(1);
  });

  it('stop during a wait ends it without another round', async () => {
    loop.start();
    (await steps.next()).end(10_000);
    await settle();
    await loop.stop();
    clock.advance(10_000);
    await settle();
    expect(steps.started).toBe(1);
  });

  it('stop waits for a round that fails, which is still told', async () => {
    loop.start();
    const round = await steps.next();
    const stopping = loop.stop();
    round.fail(new Error('late'));
    await stopping;
    expect(errors).toHaveLength(1);
  });

  it('stop before start returns at once, a hint before start does nothing, and the loop can still start', async () => {
    await loop.stop();
    loop.wake();
    await settle();
    expect(steps.started).toBe(0);
    loop.start();
    (await steps.next()).end(10_000);
    await settle();
    expect(steps.started).toBe(1);
  });

  it('a second start runs no second loop', async () => {
    loop.start();
    loop.start();
    await settle();
    expect(steps.started).toBe(1);
    (await steps.next()).end(10_000);
    await settle();
  });

  it('starts again after it was stopped', async () => {
    loop.start();
    (await steps.next()).end(10_000);
    await settle();
    await Promise.all([loop.stop(), loop.stop()]);
    loop.start();
    (await steps.next()).end(10_000);
    await settle();
    expect(steps.started).toBe(2);
  });

  it('a start during an unfinished stop is not lost: it runs on after the round that is being waited for', async () => {
    loop.start();
    const first = await steps.next();
    let stopped = false;
    const stopping = loop.stop().then(() => (stopped = true));
    loop.start();
    await settle();
    expect(steps.started).toBe(1);
    expect(stopped).toBe(false);
    first.end(10_000);
    const second = await steps.next();
    await stopping;
    second.end(10_000);
    await settle();
    clock.advance(10_000);
    (await steps.next()).end(10_000);
    await settle();
    expect(steps.started).toBe(3);
  });

  it('a start that a second stop called off runs no round, and both stops resolve', async () => {
    loop.start();
    const first = await steps.next();
    const stops = [loop.stop()];
    loop.start();
    stops.push(loop.stop());
    first.end(0);
    await Promise.all(stops);
    await settle();
    expect(steps.started).toBe(1);
  });

  it('knows when its last round ended, whether it failed or not', async () => {
    expect(loop.lastRoundAt).toBeUndefined();
    loop.start();
    const first = await steps.next();
    clock.advance(70);
    first.fail(new Error('slow and failed'));
    await settle();
    expect(loop.lastRoundAt).toBe(70);
    clock.advance(500);
    (await steps.next()).end(1_000);
    await settle();
    expect(loop.lastRoundAt).toBe(570);
  });
});

describe('a run loop whose error listener throws', () => {
  it('goes on with its next round', async () => {
    const clock = new FakeClock();
    const steps = new Steps();
    const onError = (): never => {
      throw new Error('the listener is broken');
    };
    const loop = new RunLoop({ name: 'test', clock, step: steps.step, errorDelayMs: 500, onError });
    loop.start();
    (await steps.next()).fail(new Error('the database is gone'));
    await settle();
    clock.advance(500);
    (await steps.next()).end(1_000);
    await settle();
    await loop.stop();
    expect(steps.started).toBe(2);
  });
});

/** A step whose rounds are held open, and that remembers how many ran at once at worst. */
class HeldStep {
  rounds = 0;
  atOnce = 0;
  worst = 0;
  end: () => void = () => undefined;

  readonly step = (): Promise<number> => {
    this.rounds++;
    this.worst = Math.max(this.worst, ++this.atOnce);
    return new Promise((resolve) => {
      this.end = () => {
        this.end = () => undefined;
        this.atOnce--;
        resolve(100);
      };
    });
  };
}

describe('a run loop that many callers start, stop and wake at once', () => {
  const calls = fc.array(fc.constantFrom('start', 'stop', 'wake', 'end the round', 'let time pass'), { maxLength: 60 });

  it('never runs two rounds side by side, rests when the last word was stop, runs when it was start', async () => {
    await fc.assert(
      fc.asyncProperty(calls, fc.constantFrom('start', 'stop'), async (script, lastWord) => {
        const clock = new FakeClock();
        const held = new HeldStep();
        const loop = new RunLoop({ name: 'test', clock, step: held.step, errorDelayMs: 500, onError: () => undefined });
        const stops: Promise<void>[] = [];
        const letTimePass = async (): Promise<void> => {
          clock.advance(100);
          await settle();
        };
        for (const call of [...script, lastWord]) {
          if (call === 'start') loop.start();
          if (call === 'stop') stops.push(loop.stop());
          if (call === 'wake') loop.wake();
          if (call === 'end the round') held.end();
          if (call === 'let time pass') await letTimePass();
        }
        held.end();
        await settle();
        const { rounds } = held;
        for (let passes = 0; passes < 3; passes++) {
          held.end();
          await letTimePass();
        }
        if (lastWord === 'start') expect(held.rounds).toBeGreaterThan(rounds);
        else expect(held.rounds).toBe(rounds);
        stops.push(loop.stop());
        held.end();
        await Promise.all(stops);
        expect(held.atOnce).toBe(0);
        expect(held.worst).toBeLessThanOrEqual(1);
      }),
      { numRuns: 300 },
    );
  });
});
