import type { Violation } from './invariants.js';
import type { Kind } from './kinds.js';
import type { LedgerLine } from './ledger.js';
import type { World } from './world.js';

export interface Scenario {
  readonly name: string;
  /** What it does to the engine, in a line. */
  readonly about: string;
  /** Pods that run at the beginning, and at the end. Default 2. */
  readonly pods?: number;
  /** Nothing is done to a process or to its connection to the database: nothing may run twice, be reclaimed or die of it. */
  readonly calm?: boolean;
  /** What it runs at least, where it leaves out a lane or a delivery mode. Default: both lanes, in both modes. */
  readonly kinds?: readonly Kind[];
  /** Why it cannot be tried on this machine. */
  unavailable?(): string | undefined;
  /** Runs on a server of its own, which it may kill: `world.server`. */
  readonly ownServer?: boolean;
  /** Before the first pod starts. */
  prepare?(world: World): Promise<void> | void;
  /** Does its harm; the bench heals, drains and judges afterwards. `length`: 1 for a short round, more for longer ones. */
  run(world: World, length: number): Promise<void>;
  /** After every pod has stopped: what only the scenario can see. */
  judge?(world: World, lines: readonly LedgerLine[]): Promise<void> | void;
  /** Ends what the scenario holds, whatever happened. */
  release?(world: World): Promise<void>;
}

/** The figures of one round. */
export interface RoundReport {
  scenario: string;
  seed: string;
  length: number;
  /** Hash of the sources that were run: those of the engine and of the bench. */
  code: string;
  /** Rows whose transaction committed. */
  rows: number;
  runs: number;
  faults: number;
  schedule: string[];
  lost: number;
  doubled: number;
  out_of_order: number;
  dead: number;
  /** Rows that ran to a good end more than once: at least once may. */
  repeated: number;
  /** After the healing: how long it took to drain, and the longest time without any progress, in ms. */
  drained_ms: number;
  longest_stall_ms: number;
  /** Looks of the sampler. */
  looks: number;
  seconds: number;
  violations: Violation[];
}
