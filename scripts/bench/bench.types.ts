// What a bench is handed, and what it hands back. Types only.
import type { Measured, BenchResult, Rounds } from './measure.js';

export interface Servers {
  mongoUri: string;
  kafkaBrokers: string;
  redisUrl: string;
}

export interface BenchContext extends Servers {
  /** Small sizes and few rounds: shows that the bench runs, proves nothing. */
  quick: boolean;
  /** Factor on the number of rows. */
  scale: number;
  rounds: Rounds;
  /** Progress, for people. */
  say(line: string): void;
  /** `full` rows times the scale, or the smaller size of a quick run. */
  size(full: number, quick: number): number;
}

export interface Bench {
  name: string;
  about: string;
  run(context: BenchContext): Promise<Omit<BenchResult, 'bench'>>;
}

export type { Measured };
