// A query of the engine as its plan is asked for: the store function that sends it, called as the engine calls it.
import type { ClientSession, Connection, Types } from 'mongoose';
import type { JobsCollections } from '../../../src/jobs/store/collections.js';
import type { JobDoc } from '../../../src/jobs/store/jobs.schema.js';
import type { ScheduleDoc } from '../../../src/schedules/schedules.schema.js';
import type { SchedulesCollections } from '../../../src/schedules/schedules.store.js';
import type { Plan } from '../query_plans.js';

export interface Loaded {
  readonly connection: Connection;
  readonly jobs: JobsCollections;
  readonly schedules: SchedulesCollections;
  readonly now: Date;
  readonly past: Date;
  readonly later: Date;
  /** What one round of each lane holds in its hands. */
  readonly fast: JobDoc[];
  readonly running: JobDoc[];
  readonly due: Types.ObjectId[];
  readonly dead: Types.ObjectId[];
  readonly kept: JobDoc[];
  readonly schedule: ScheduleDoc;
}

export type StoreFunction = (...args: never[]) => unknown;

export interface EngineQuery {
  readonly name: string;
  readonly of: StoreFunction;
  /** Indexes that may serve it; more than one where it asks for several things, or where the server may choose. */
  readonly index: readonly string[];
  /** Most rows each of its commands may examine, on any number of stored rows. */
  readonly examined: number;
  /** May examine more on MongoDB, which counts the keys it steps over: with what that grows. */
  readonly grows?: string;
  /** Reads a whole collection, and sorts it where it likes: why that one cannot grow with the rows. */
  readonly whole?: string;
  /** Sends it, in a transaction that is called off where it takes one. */
  run(loaded: Loaded): Promise<unknown>;
}

interface Asked<F extends StoreFunction> extends Omit<EngineQuery, 'of' | 'run' | 'index'> {
  readonly of: F;
  readonly index: string | readonly string[];
  /** Calls it. Twice over, it must send the same: what it changes outside of the transaction must not change its plan. */
  ask(send: F, loaded: Loaded, session: ClientSession): unknown;
}

export function query<F extends StoreFunction>({ index, ask, ...asked }: Asked<F>): EngineQuery {
  return {
    ...asked,
    index: typeof index === 'string' ? [index] : index,
    run: async (loaded) => {
      let called = false;
      const send = ((...args: never[]) => {
        called = true;
        return asked.of(...args);
      }) as F;
      const session = await loaded.connection.startSession();
      session.startTransaction();
      try {
        await ask(send, loaded, session);
        if (!called) throw new Error(`${asked.name}: its function was not called`);
      } finally {
        await session.abortTransaction();
        await session.endSession();
      }
    },
  };
}

/** Entries that an index of PostgreSQL still has of a row's earlier versions. */
const EARLIER_VERSIONS = 10;

/** What is wrong with a plan of the query; empty: nothing. */
export function faultsOf({ index, examined, whole, grows }: EngineQuery, plan: Plan): string[] {
  const others = plan.indexes.filter((name) => !index.includes(name));
  return [
    ...(plan.documents > examined ? [`${plan.documents} documents, more than ${examined}`] : []),
    ...(grows === undefined && plan.keys > examined + EARLIER_VERSIONS
      ? [`${plan.keys} keys, more than ${examined}`]
      : []),
    ...(whole === undefined && plan.stages.includes('COLLSCAN') ? ['scans the collection'] : []),
    ...(whole === undefined && plan.sorts ? ['sorts in memory'] : []),
    ...(whole === undefined && plan.indexes.length === 0 ? ['no index'] : []),
    ...(whole === undefined && others.length > 0 ? [`index ${others.join(', ')}`] : []),
  ];
}

/** Rows of a batch, of a page, of a slice. */
export const BATCH = 100;
export const CLAIMS = 50;
/** Where counts for people stop. */
export const MOST = 200;
export const PARTITIONS = 4;
export const FAST = 'explain:fast';
export const LIGHT = 'explain:light';
export const LONG = 'explain:long';
export const PAUSED = 'explain:paused';
export const BUSY = 'explain:busy';
export const DAILY = 'schedule:daily';
export const KEYS = 200;
/** Of every collection that holds a row per partition, pod, target, schedule or rate key. */
export const SMALL = 1_000;
export const HOUR_MS = 3_600_000;
