/**
 * One pod of test/concurrency/schedule_slots.spec.ts, as a process of its own: a real application whose clock runs many
 * times faster, from an origin that all pods share. Started by `fork`; talks to its parent in messages.
 */
import { Logger, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { getConnectionToken, MongooseModule } from '@nestjs/mongoose';
import type { Connection } from 'mongoose';
import { CLOCK, type Clock, type Timer } from '../../src/common/ports/clock.js';
import { JobsEvents, JobsModule, JobsWorkersModule, SchedulesModule, SchedulesService } from '../../src/index.js';

export interface ChildOrders {
  readonly uri: string;
  readonly db: string;
  readonly name: string;
  /** Where all clocks stand until they are told to go. */
  readonly origin: number;
  readonly speed: number;
  /** This pod's clock is wrong by so much, in ms. */
  readonly skew: number;
  readonly schedules: readonly { code: string; cron: string }[];
}

/** From the real time `at` on, the clock runs from `from` to `until` and stands there. */
export interface Lap {
  at: number;
  from: number;
  until: number;
}

export type ToChild = Lap | { stop: true };
export type FromChild = { ready: true } | { ran: string } | { stopped: string[] };

export interface LedgerEntry {
  code: string;
  slot: string;
  pod: string;
}

/** Real timers below this would only make four pods ask the same question more often. */
const SHORTEST_TIMER_MS = 200;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

class FastClock implements Clock {
  private lap: Lap = { at: 0, from: 0, until: 0 };

  constructor(private readonly orders: ChildOrders) {}

  run(lap: Lap): void {
    this.lap = lap;
  }

  now(): Date {
    return new Date(this.orders.origin + this.orders.skew + this.monotonic());
  }

  monotonic(): number {
    const { at, from, until } = this.lap;
    return Math.min(until, from + Math.max(0, Date.now() - at) * this.orders.speed);
  }

  sync(): Promise<void> {
    return Promise.resolve();
  }

  after(ms: number, callback: () => void): Timer {
    const handle = setTimeout(callback, Math.max(SHORTEST_TIMER_MS, ms / this.orders.speed));
    return { cancel: () => clearTimeout(handle) };
  }
}

const send = (message: FromChild): void => void process.send!(message);

async function main(orders: ChildOrders): Promise<void> {
  const clock = new FastClock(orders);

  @Module({
    imports: [
      MongooseModule.forRoot(orders.uri, { dbName: orders.db }),
      // Leases are for pods that die; on this clock a slow answer of the database must not look like death.
      JobsModule.forRoot({
        workers: 'on',
        partitions: 4,
        lease: { ttl_ms: HOUR, heartbeat_ms: 20 * MINUTE, worker_ttl_ms: HOUR },
        fast_lane: { idle_poll_ms: [10 * MINUTE] },
        long_lane: {
          lease_ms: 24 * HOUR,
          renew_ms: HOUR,
          timeout_ms: 30 * 24 * HOUR,
          idle_poll_ms: [10 * MINUTE],
          sweep_ms: HOUR,
          cancel_check_ms: HOUR,
        },
      }),
      SchedulesModule.forRoot({ timezone: 'UTC' }),
      JobsWorkersModule,
    ],
    providers: [
      {
        provide: 'declarations',
        useFactory: (schedules: SchedulesService, connection: Connection) => {
          for (const { code, cron } of orders.schedules) {
            schedules.declare({
              code,
              cron,
              missed_slot_policy: 'run_once',
              handler: async ({ slot }) => {
                const entry: LedgerEntry = { code, slot: slot.toISOString(), pod: orders.name };
                await connection.collection<LedgerEntry>('ledger').insertOne({ ...entry });
                send({ ran: `${code} ${entry.slot}` });
              },
            });
          }
        },
        inject: [SchedulesService, getConnectionToken()],
      },
    ],
  })
  class Pod {}

  const app = await NestFactory.createApplicationContext(withClock(Pod, clock), { logger: false, abortOnError: false });
  const failures: string[] = [];
  app.get(JobsEvents).on((event) => {
    if (event.type === 'loop_failed') failures.push(`${event.loop}: ${String(event.error)}`);
  });
  process.on('message', (message: ToChild) => {
    if ('at' in message) return clock.run(message);
    void app.close().then(() => {
      send({ stopped: failures });
      process.disconnect();
    });
  });
  send({ ready: true });
}

/** The engine's modules ask for CLOCK in their own scope, so its provider there is replaced before anything is built. */
function withClock(pod: new () => object, clock: Clock): new () => object {
  const parts = Reflect.getMetadata('providers', JobsModule) as { provide?: unknown }[];
  const others = parts.filter((part) => part.provide !== CLOCK);
  Reflect.defineMetadata('providers', [...others, { provide: CLOCK, useValue: clock }], JobsModule);
  return pod;
}

Logger.overrideLogger(false);
main(JSON.parse(process.argv[2]!) as ChildOrders).catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
