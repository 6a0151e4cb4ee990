/**
 * What must be true of the database before anything of the engine runs: one engine per connection, indexes, the
 * partition count, the partition rows, its time. Every step may be repeated, and may run on any number of pods at once.
 *
 * The first connection is Mongoose's: how long it tries is said by `retryAttempts` and `retryDelay` of `MongooseModule`.
 * A database that goes away after that (an election, a restart) is waited for here, up to `boot_wait_ms`.
 */
import type { Connection } from 'mongoose';
import { BootError } from '../common/errors.js';
import { DatabaseClock, type Clock } from '../common/ports/clock.js';
import { untilThere } from '../common/utils/database_away.js';
import type { JobsEvents } from './jobs.events.js';
import type { JobsConfig } from './jobs.options.js';
import { agreeOnPartitions, ensureIndexes, seedPartitions } from './store/boot.store.js';
import { openCollections, type JobsCollections } from './store/collections.js';

/** Connections that an engine of this process runs on: a second one would be a second owner under another name. */
const engines = new WeakSet<Connection>();

const RETRY_MS = 1_000;
/** Without a margin (`lease.margin_ms: 0`) no round trip would be quick enough to tell the time by. */
const LEAST_MARGIN_MS = 100;

/** Throws `BootError`s that say what to do; no lane starts then. Indexes first: nothing is written unguarded. */
export async function prepareDatabase(
  connection: Connection,
  config: JobsConfig,
  events: JobsEvents,
): Promise<JobsCollections> {
  if (engines.has(connection)) {
    throw new BootError(
      'two_engines',
      'JobsModule.forRoot() was called twice for one Mongoose connection: import it once',
    );
  }
  engines.add(connection);
  try {
    const collections = await openCollections(connection, config);
    const prepare = async (): Promise<void> => {
      await ensureIndexes(collections);
      await agreeOnPartitions(collections, config.partitions);
      await seedPartitions(collections, config.partitions);
    };
    await waitForDatabase(prepare, new DatabaseClock(collections.databaseTime), config, events);
    return collections;
  } catch (error) {
    leaveConnection(connection); // or a boot that is tried again would find itself in the way
    throw error;
  }
}

/** A clock that knows the database's time. */
export async function openClock(
  { databaseTime }: JobsCollections,
  config: JobsConfig,
  events: JobsEvents,
): Promise<DatabaseClock> {
  // Off by the margin at most: it is what lies between the end of a lease and the last moment it is trusted.
  const clock = new DatabaseClock(databaseTime, undefined, 2 * Math.max(config.lease.margin_ms, LEAST_MARGIN_MS));
  await waitForDatabase(() => clock.sync(), clock, config, events);
  return clock;
}

/** The engine on this connection has ended. */
export function leaveConnection(connection: Connection): void {
  engines.delete(connection);
}

/** Work of the boot that may be repeated, until the database is there: up to `boot_wait_ms`, and said each time. */
export function waitForDatabase<T>(
  work: () => Promise<T>,
  clock: Pick<Clock, 'monotonic'>,
  config: JobsConfig,
  events: JobsEvents,
): Promise<T> {
  return untilThere(work, {
    clock,
    forMs: config.boot_wait_ms,
    everyMs: RETRY_MS,
    onAway: (error, left_ms) => events.emit({ type: 'boot_waits', error, left_ms }),
  });
}
