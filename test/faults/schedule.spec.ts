/**
 * One seed, one schedule of faults, however long the machine takes: a scenario draws nothing more because somebody was
 * late. Tried on a world without processes, where nothing takes time and everything looked for is there at once or late.
 */
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { machineMs } from './bench/ledger.js';
import { NEW_TARGETS } from './bench/pod_settings.js';
import { KAFKA_TROUBLES, kafkaTroubles, troubleText } from './bench/kafka_troubles.js';
import { SeededRandom } from './bench/random.js';
import type { Wishes, World } from './bench/world.js';
import { SCENARIOS } from './scenarios/index.js';

/** Their runs need nothing that a stand-in could not give. */
const NAMES = [
  'admins',
  'blocked_loop',
  'clocks',
  'crash_points_end',
  'crash_points_enqueue',
  'crash_points_hand_over',
  'crash_points_run',
  'cut_pod',
  'database_away',
  'frozen_pod',
  'lost_replies',
  'rolling_restart',
  'version_crash',
];

let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'sidelane-schedule-'))));
afterAll(() => rmSync(folder, { recursive: true }));

class Stand {
  readonly random: SeededRandom;
  readonly faults: string[] = [];
  readonly pods: object[] = [];
  readonly folder = folder;
  readonly touched: unknown[] = [];
  readonly removed: unknown[] = [];
  defaults = {};
  private looks = 0;

  constructor(
    readonly seed: string,
    private readonly late: number,
  ) {
    this.random = new SeededRandom(seed);
  }

  get alive(): object[] {
    return this.pods.filter((pod) => (pod as { alive: boolean }).alive);
  }

  /** Collections where a look finds what it looks for, or only every so many looks. */
  get jobs(): object {
    const found = (): boolean => ++this.looks % (this.late + 1) === 0;
    const row = { _id: { toHexString: () => 'id' }, payload: { n: 'a' }, lease_token: 'a', inflight: [] };
    return {
      find: () => ({ toArray: () => Promise.resolve(found() ? [row] : []) }),
      findOne: () => Promise.resolve(null),
      countDocuments: () => Promise.resolve(0),
    };
  }

  get connection(): object {
    return { collection: () => this.jobs };
  }

  start({ crash, version = 1 }: Wishes & { version?: number } = {}): Promise<object> {
    const lost: string[] = [];
    const end = { at: 0, code: null, signal: 'SIGKILL' };
    const pod = {
      name: `p${this.pods.length + 1}`,
      pid: '1',
      output: '',
      settings: { version },
      crash,
      alive: !crash,
      ...(crash && { end }),
      proxy: { lost, become: nothing, loseReplies: ({ name }: { name: string }) => void lost.push(name) },
      ended: Promise.resolve(end),
      ready: () => Promise.resolve(true),
      call: () => Promise.resolve(),
      freeze: nothing,
      resume: nothing,
      tell: nothing,
      kill: () => void (pod.alive = false),
      terminate: () => void (pod.alive = false),
    };
    this.pods.push(pod);
    if (version === 2) keepRunning(pod.name);
    return Promise.resolve(pod);
  }

  async boot(count: number, wishes: Wishes = {}): Promise<object[]> {
    return Promise.all(Array.from({ length: count }, () => this.start(wishes)));
  }

  wait(from: number, to = from): Promise<number> {
    return Promise.resolve(this.random.int(from, to));
  }

  business(): Promise<void> {
    return Promise.resolve();
  }

  fault(text: string): void {
    this.faults.push(text);
  }

  violated = nothing; // nothing really happens here
}

function nothing(): void {}

/** Rows of the new targets, each of which begins whenever somebody looks. */
function keepRunning(pod: string): void {
  const at = machineMs() + 3_600_000;
  const lines = NEW_TARGETS.map(
    (target, run) => `${JSON.stringify({ what: 'start', at, pod, n: target, target, run })}\n`,
  );
  appendFileSync(join(folder, `${pod}.ledger`), lines.join(''));
}

async function scheduleOf(name: string, seed: string, late = 0): Promise<string[]> {
  const scenario = SCENARIOS.find((each) => each.name === name)!;
  const world = new Stand(`${name} ${seed}`, late);
  await scenario.prepare?.(world as unknown as World);
  await world.boot(scenario.pods ?? 2);
  await scenario.run(world as unknown as World, 1);
  return world.faults;
}

describe('the schedule of faults', () => {
  it.each(NAMES)('of %s follows from the seed', async (name) => {
    const [one, same, late] = [
      await scheduleOf(name, '1'),
      await scheduleOf(name, '1'),
      await scheduleOf(name, '1', 2),
    ];
    expect(one.length).toBeGreaterThan(0);
    expect(same).toEqual(one);
    expect(late).toEqual(one);
  });

  it.each(NAMES)('of %s is another one for other seeds', async (name) => {
    const seeds = await Promise.all(['1', '2', '3'].map((seed) => scheduleOf(name, seed)));
    expect(new Set(seeds.map((faults) => faults.join())).size).toBeGreaterThan(1);
  });

  it('of kafka_trouble is drawn before it begins: from the seed alone, and with every trouble', () => {
    const of = (seed: string): string[] => kafkaTroubles(new SeededRandom(seed), 1).map(troubleText);
    expect(of('1')).toEqual(of('1'));
    expect(of('2')).not.toEqual(of('1'));
    for (const seed of ['1', '2', '3']) {
      const kinds = new Set(kafkaTroubles(new SeededRandom(seed), 1).map(({ kind }) => kind));
      expect([...kinds].sort()).toEqual([...KAFKA_TROUBLES].sort());
    }
  });
});
