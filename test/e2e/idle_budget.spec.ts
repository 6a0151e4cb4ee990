import { afterAll, describe, expect, it } from '@jest/globals';
import { setImmediate as turn } from 'node:timers/promises';
import type { JobTargetOptions } from '../../src/jobs/targets/job_targets.registry.js';
import { SchedulesModule, SchedulesService } from '../../src/index.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';

const MINUTE = 60_000;

/** The commands under way, so that a test can move its clock only while nothing is. */
class Traffic {
  readonly names: string[] = [];
  private readonly open = new Set<number>();

  constructor(pod: TestPod) {
    const client = pod.connection.getClient();
    client.on('commandStarted', ({ commandName, requestId }: { commandName: string; requestId: number }) => {
      this.open.add(requestId);
      this.names.push(commandName);
    });
    client.on('commandSucceeded', ({ requestId }: { requestId: number }) => this.open.delete(requestId));
    client.on('commandFailed', ({ requestId }: { requestId: number }) => this.open.delete(requestId));
  }

  async settled(): Promise<void> {
    for (let quiet = 0; quiet < 10;) {
      await turn();
      quiet = this.open.size === 0 ? quiet + 1 : 0;
    }
  }
}

/** Due once a year, so that no slot comes due meanwhile. */
class Quiet {
  constructor(schedules: SchedulesService) {
    for (let index = 0; index < 20; index++) {
      schedules.declare({ code: `quiet_${index}`, cron: '0 0 1 6 *', handler: async () => undefined });
    }
  }
}

describe('an idle pod with its loops running, 10 targets and 20 schedules', () => {
  const db = new TestDatabase();
  afterAll(() => db.drop());

  it('sends under one command a second, everything together', async () => {
    const clock = new FakeClock();
    const targets = Array.from({ length: 10 }, (_, index): JobTargetOptions => {
      return { name: `idle:${index}`, lane: index % 2 ? 'long' : 'fast', handler: async () => undefined };
    });
    const pod = await db.pod({ workers: 'on', partitions: 64 }, targets, clock, {
      imports: [SchedulesModule.forRoot({})],
      providers: [
        {
          provide: Quiet,
          useFactory: (schedules: SchedulesService) => new Quiet(schedules),
          inject: [SchedulesService],
        },
      ],
    });
    const traffic = new Traffic(pod);
    const idleFor = async (ms: number): Promise<void> => {
      for (let passed = 0; passed < ms; passed += 500) {
        clock.advance(500);
        await traffic.settled();
      }
    };
    await idleFor(MINUTE); // partitions are taken, waits have grown
    expect(pod.leases.readable()).toHaveLength(64);
    traffic.names.length = 0;
    const syncs = clock.syncs;
    await idleFor(2 * MINUTE);
    expect(traffic.names.length).toBeGreaterThan(60); // the loops did run
    expect(traffic.names.length + clock.syncs - syncs).toBeLessThan(120);
  }, 60_000);
});
