/** Schedules on a real database: sync at boot, one row per slot, missed slots, runs. The clock starts on 2030-01-01, 00:00 UTC. */
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Injectable, Scope } from '@nestjs/common';
import { SCHEDULE_INDEXES } from '../../src/schedules/schedules.schema.js';
import { reviveSlice } from '../../src/jobs/store/admin_bulk.store.js';
import { reviveDead } from '../../src/jobs/store/admin_change.store.js';
import type { JobDoc } from '../../src/jobs/store/jobs.schema.js';
import { Schedule } from '../../src/schedules/schedule.decorator.js';
import type { SlotRun } from '../../src/schedules/schedule_declaration.js';
import { SchedulesModule } from '../../src/schedules/schedules.module.js';
import {
  advance,
  changeSchedule,
  recordRun,
  recordSkip,
  schedulesUpTo,
  updateDeclared,
} from '../../src/schedules/schedules.store.js';
import { inTransaction } from '../../src/common/utils/transaction.js';
import { FakeClock } from '../support/fake_clock.js';
import { TestDatabase, type TestPod } from '../support/pod.js';
import { schedulePod, Slots, type SchedulePod } from '../support/schedule_pod.js';

const SECOND = 1_000;
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const at = (time: string): Date => new Date(`2030-01-01T${time}Z`);

describe('schedules', () => {
  const db = new TestDatabase();
  let clock: FakeClock;
  let slots: Slots;
  beforeEach(() => {
    clock = new FakeClock();
    slots = new Slots();
  });
  afterEach(() => db.reset());
  afterAll(() => db.drop());

  const boot = (...declare: ReturnType<Slots['declaration']>[]): Promise<SchedulePod> =>
    schedulePod(db, { clock, declare });
  const slotRows = (pod: TestPod) => pod.jobs.find().sort({ dedupe_key: 1 }).toArray();
  const slotKeys = async (pod: TestPod): Promise<string[]> => (await slotRows(pod)).map((row) => row.dedupe_key);
  const failed = (pod: TestPod) => pod.eventsOf('loop_failed');

  describe('at boot', () => {
    it('a declared schedule gets its row: enabled, its next slot, the zone of the module', async () => {
      const { row } = await boot({ ...slots.declaration('daily', '0 9 * * *'), timezone: '+07:00' });
      expect(await row('daily')).toMatchObject({
        code: 'daily',
        cron: '0 9 * * *',
        timezone: '+07:00',
        enabled: true,
        missed_slot_policy: 'run_once',
        retry_count: 3,
        next_run_at: at('02:00:00'),
      });
    });

    it('a schedule without a zone is read in the default zone', async () => {
      const declaration = slots.declaration('daily', '0 9 * * *');
      delete declaration.timezone;
      const first = await boot(declaration);
      expect(await first.row('daily')).toMatchObject({ timezone: '+07:00', next_run_at: at('02:00:00') });
      await first.pod.close();
      const second = await schedulePod(db, { clock, declare: [declaration], schedules: { timezone: 'Asia/Tokyo' } });
      expect(await second.row('daily')).toMatchObject({
        timezone: 'Asia/Tokyo',
        next_run_at: new Date('2030-01-02T00:00:00Z'),
      });
    });

    it.each([
      ['*/5 * * * *', 'skip'],
      ['*/6 * * * *', 'run_once'],
      ['*/30 * * * * *', 'skip'],
    ])('%s misses slots by policy %s unless it says otherwise', async (cron, policy) => {
      const { row } = await boot(
        slots.declaration('a', cron),
        slots.declaration('b', cron, { missed_slot_policy: 'run_once' }),
      );
      expect((await row('a')).missed_slot_policy).toBe(policy);
      expect((await row('b')).missed_slot_policy).toBe('run_once');
    });

    it('a restart keeps what is due and what an admin set, and takes over what the code says', async () => {
      const first = await boot(slots.declaration('hourly', '0 * * * *'));
      await first.collections.schedules.updateOne(
        { code: 'hourly' },
        { $set: { enabled: false, cron_override: '30 * * * *' } },
      );
      await first.pod.close();
      clock.advance(5 * HOUR);
      const second = await boot(slots.declaration('hourly', '0 * * * *', { retry_count: 7 }));
      expect(await second.row('hourly')).toMatchObject({
        enabled: false,
        cron_override: '30 * * * *',
        retry_count: 7,
        next_run_at: at('01:00:00'),
      });
    });

    it('a changed expression moves the next slot; under an override it does not', async () => {
      const first = await boot(slots.declaration('a', '0 * * * *'), slots.declaration('b', '0 * * * *'));
      await first.admin.override('b', '10 * * * *', 'test');
      await first.pod.close();
      clock.advance(2 * HOUR);
      const second = await boot(slots.declaration('a', '45 * * * *'), slots.declaration('b', '45 * * * *'));
      expect(await second.row('a')).toMatchObject({ cron: '45 * * * *', next_run_at: at('02:45:00') });
      expect(await second.row('b')).toMatchObject({ cron: '45 * * * *', next_run_at: at('00:10:00') });
    });

    it('two pods at an empty collection make one row', async () => {
      const declaration = slots.declaration('hourly', '0 * * * *');
      const [one] = await Promise.all([boot(declaration), boot(declaration)]);
      expect(await one.collections.schedules.countDocuments()).toBe(1);
    });

    it('the indexes are there', async () => {
      const { collections } = await boot();
      const names = (await collections.schedules.listIndexes().toArray()).map(({ name }) => name as string);
      expect(names).toEqual(expect.arrayContaining(SCHEDULE_INDEXES.map(({ name }) => name)));
    });

    it('with workers off the rows are synced all the same, and nothing ticks', async () => {
      const declare = [slots.declaration('hourly', '0 * * * *')];
      const { pod, row } = await schedulePod(db, { clock, declare, jobs: { workers: 'off' } });
      expect(await row('hourly')).toMatchObject({ next_run_at: at('01:00:00') });
      expect(await pod.commandsOf(async () => clock.advance(2 * HOUR))).toEqual([]);
    });

    it('with workers on the tick runs by itself, and stops with the application', async () => {
      const declare = [slots.declaration('hourly', '0 * * * *')];
      const { pod, tick } = await schedulePod(db, { clock, declare, jobs: { workers: 'on' } });
      // The first round has begun with the application; the loop's own stop waits for it.
      await tick.stop();
      expect(tick.lastRoundAt).toBeDefined();
      await pod.close();
    });

    it('a schedule that only another version knows is left alone: not deleted, not ticked, shown as orphaned', async () => {
      const [fresh, old] = [await boot(slots.declaration('new_one', '0 * * * *')), await boot()];
      clock.advance(2 * HOUR);
      await old.tick.tickOnce();
      expect(await old.pod.jobs.countDocuments()).toBe(0);
      expect(await old.admin.list()).toMatchObject([{ code: 'new_one', orphaned: true, next_run_at: at('01:00:00') }]);
      expect(await fresh.admin.list()).toMatchObject([{ code: 'new_one', orphaned: false }]);
      await fresh.tick.tickOnce();
      expect(await slotKeys(fresh.pod)).toEqual(['new_one:2030-01-01T02:00:00.000Z']);
      // Nor does it run a row of it.
      await old.pod.drain();
      expect(await old.pod.jobs.countDocuments()).toBe(1);
    });

    it('a stored override that cannot be read is told, and the other schedules boot', async () => {
      const declare = [slots.declaration('bad', '0 * * * *'), slots.declaration('good', '0 * * * *')];
      const first = await boot(...declare);
      await first.collections.schedules.updateOne({ code: 'bad' }, { $set: { cron_override: 'whenever' } });
      await first.pod.close();
      const second = await boot(...declare);
      expect((await second.admin.list()).map(({ code, error }) => [code, error?.includes('whenever')])).toEqual([
        ['bad', true],
        ['good', undefined],
      ]);
    });
  });

  describe('a declaration', () => {
    it.each([
      [{ code: '' }, 'invalid_schedule', 'code'],
      [{ code: 'two words' }, 'invalid_schedule', 'code'],
      [{ code: '$where' }, 'invalid_schedule', 'code'],
      [{ cron: '' }, 'invalid_cron', 'cron'],
      [{ cron: '61 * * * *' }, 'invalid_cron', 'cron'],
      [{ timezone: 'Mars/Olympus' }, 'invalid_timezone', 'timezone'],
      [{ retry_count: 0 }, 'invalid_schedule', 'retry_count'],
      [{ retry_count: 1.5 }, 'invalid_schedule', 'retry_count'],
      [{ missed_slot_policy: 'later' as 'skip' }, 'invalid_schedule', 'missed_slot_policy'],
      [{ handler: undefined as never }, 'invalid_schedule', 'handler'],
      [{ every: '5m' } as object, 'invalid_schedule', 'every'],
    ])('with %j is refused, naming the field', async (fault, code, field) => {
      await expect(boot({ ...slots.declaration('ok', '0 * * * *'), ...fault })).rejects.toMatchObject({ code, field });
    });

    it('of a code that is declared already is refused', async () => {
      const declaration = slots.declaration('twice', '0 * * * *');
      await expect(boot(declaration, declaration)).rejects.toMatchObject({ code: 'duplicate_schedule' });
    });

    it('after the application has started is refused: its row would never be made', async () => {
      const { service } = await boot();
      expect(() => service.declare(slots.declaration('late', '0 * * * *'))).toThrow(
        expect.objectContaining({ code: 'declared_too_late' }),
      );
    });

    it('the module imported twice is refused', async () => {
      const pod = db.pod({}, [], clock, {
        imports: [SchedulesModule.forRoot({}), SchedulesModule.forRoot({ timezone: 'UTC' })],
      });
      await expect(pod).rejects.toMatchObject({ code: 'two_engines' });
    });

    it('the module with a bad option is refused, naming it', async () => {
      const withOptions = (schedules: object) => schedulePod(db, { clock, schedules });
      await expect(withOptions({ timezone: 'Nowhere' })).rejects.toMatchObject({ field: 'schedules.timezone' });
      await expect(withOptions({ timezon: 'UTC' })).rejects.toMatchObject({ field: 'schedules.timezon' });
    });
  });

  describe('@Schedule', () => {
    const withProviders = (...providers: never[] | [unknown, ...unknown[]]): Promise<SchedulePod> =>
      schedulePod(db, { clock, providers: providers as never[] });

    it('declares a method; it runs on its instance with slot, job and ctx', async () => {
      @Injectable()
      class Reports {
        readonly seen: SlotRun[] = [];
        @Schedule({ code: 'report', cron: '0 * * * *', timezone: 'UTC' })
        async hourly(run: SlotRun): Promise<void> {
          this.seen.push(run);
        }
      }
      const { pod, tick } = await withProviders(Reports);
      clock.advance(HOUR);
      await tick.tickOnce();
      await pod.drain();
      expect(pod.module.get(Reports).seen).toMatchObject([
        { slot: at('01:00:00'), job: { code: 'report', target: 'schedule:report' }, ctx: { attempt: 1 } },
      ]);
    });

    it('on a request-scoped provider fails the boot with class and method', async () => {
      @Injectable({ scope: Scope.REQUEST })
      class Scoped {
        @Schedule({ code: 'scoped', cron: '0 * * * *' })
        async run(): Promise<void> {}
      }
      await expect(withProviders(Scoped)).rejects.toThrow(/@Schedule on Scoped\.run: .*request-scoped/);
    });

    it('with a bad expression fails the boot with class, method and field', async () => {
      @Injectable()
      class Bad {
        @Schedule({ code: 'bad', cron: '99 * * * *' })
        async run(): Promise<void> {}
      }
      await expect(withProviders(Bad)).rejects.toThrow(/@Schedule on Bad\.run: cron: /);
    });

    it('of a code twice fails the boot with class and method', async () => {
      @Injectable()
      class Twice {
        @Schedule({ code: 'twice', cron: '0 * * * *' })
        async one(): Promise<void> {}
        @Schedule({ code: 'twice', cron: '0 * * * *' })
        async two(): Promise<void> {}
      }
      await expect(withProviders(Twice)).rejects.toThrow(/@Schedule on Twice\.two: .*declared twice/);
    });

    it('on an inherited method is one schedule, whatever tokens the instance has', async () => {
      class Base {
        @Schedule({ code: 'inherited', cron: '0 * * * *' })
        async run(): Promise<void> {}
      }
      @Injectable()
      class Child extends Base {}
      const { service } = await withProviders(Child, { provide: 'alias', useExisting: Child });
      expect(service.codes()).toEqual(['inherited']);
    });

    it('is not looked for in values that have no class', async () => {
      const odd = { provide: 'odd', useValue: Object.create(null) as object };
      const throwing = {
        provide: 'throwing',
        useValue: {
          get boom(): never {
            throw new Error('read');
          },
        },
      };
      const nothing = { provide: 'nothing', useValue: null };
      const { service } = await withProviders(odd, throwing, nothing);
      expect(service.codes()).toEqual([]);
    });
  });

  describe('a tick', () => {
    it('turns a due slot into one row of the long lane, and moves on', async () => {
      const { pod, tick, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(HOUR);
      await tick.tickOnce();
      expect(await slotRows(pod)).toMatchObject([
        {
          code: 'hourly',
          target: 'schedule:hourly',
          lane: 'long',
          status: 'PENDING',
          dedupe_key: 'hourly:2030-01-01T01:00:00.000Z',
          payload: { slot: '2030-01-01T01:00:00.000Z' },
          next_run_at: at('01:00:00'),
        },
      ]);
      expect((await row('hourly')).next_run_at).toEqual(at('02:00:00'));
      expect(pod.eventsOf('slot_enqueued')).toEqual([{ type: 'slot_enqueued', code: 'hourly', slot: at('01:00:00') }]);
      await tick.tickOnce();
      expect(await pod.jobs.countDocuments()).toBe(1);
    });

    it('sleeps until the next slot it knows, 15 s at most', async () => {
      const { tick } = await boot(slots.declaration('minutely', '* * * * *'), slots.declaration('daily', '0 0 * * *'));
      expect(await tick.tickOnce()).toBe(15 * SECOND);
      clock.advance(48 * SECOND);
      expect(await tick.tickOnce()).toBe(12 * SECOND);
      clock.advance(12 * SECOND);
      expect(await tick.tickOnce()).toBe(15 * SECOND);
    });

    it('sleeps until the slot after the one it just enqueued, where that is sooner', async () => {
      const { tick } = await boot(slots.declaration('often', '*/5 * * * * *'));
      clock.advance(5 * SECOND + 300);
      expect(await tick.tickOnce()).toBe(4_700);
    });

    it('that finds nothing due is one query, whatever the number of schedules; without schedules none', async () => {
      const many = Array.from({ length: 20 }, (_, index) => slots.declaration(`s${index}`, '0 * * * *'));
      const { pod, tick } = await boot(...many);
      expect(await pod.commandsOf(() => tick.tickOnce())).toEqual(['find']);
      const idle = await boot();
      expect(await idle.pod.commandsOf(() => idle.tick.tickOnce())).toEqual([]);
    });

    it('an idle minute of the loop is four queries', async () => {
      const declare = [slots.declaration('daily', '0 0 * * *')];
      const { pod, tick } = await schedulePod(db, { clock, declare });
      const commands = await pod.commandsOf(async () => {
        let left = MINUTE;
        while (left > 0) {
          const delay = await tick.tickOnce();
          clock.advance(delay);
          left -= delay;
        }
      });
      expect(commands).toEqual(['find', 'find', 'find', 'find']);
    });

    it('of several pods at once makes one row per slot, and the others notice nothing', async () => {
      const declaration = slots.declaration('minutely', '* * * * *', { missed_slot_policy: 'run_once' });
      const pods = [await boot(declaration), await boot(declaration), await boot(declaration)];
      for (let minute = 0; minute < 5; minute++) {
        clock.advance(MINUTE);
        await Promise.all(pods.map(({ tick }) => tick.tickOnce()));
      }
      expect(await slotKeys(pods[0]!.pod)).toEqual(
        ['01', '02', '03', '04', '05'].map((minute) => `minutely:2030-01-01T00:${minute}:00.000Z`),
      );
      expect(pods.flatMap(({ pod }) => pod.eventsOf('slot_enqueued'))).toHaveLength(5);
      expect(pods.flatMap(({ pod }) => [...failed(pod), ...pod.eventsOf('slot_skipped')])).toEqual([]);
    });

    it('of a pod that stalled between read and write makes no second row of a slot that has run', async () => {
      const declaration = slots.declaration('hourly', '0 * * * *');
      const [stalled, live] = [await boot(declaration), await boot(declaration)];
      clock.advance(HOUR);
      const [seen] = await schedulesUpTo(stalled.collections, ['hourly'], clock.now());
      await live.tick.tickOnce();
      await live.pod.drain();
      expect(await live.pod.jobs.countDocuments()).toBe(0); // the dedupe key went with the row
      await stalled.tick.tickSchedule(seen!);
      expect(await stalled.pod.jobs.countDocuments()).toBe(0);
      expect(slots.times).toEqual(['01:00:00']);
    });

    it.each([
      ['disabled', { enabled: false }],
      ['overridden', { cron_override: '30 * * * *' }],
      ['given another expression by a newer version', { cron: '30 * * * *' }],
      ['given another zone by a newer version', { timezone: 'Europe/Berlin' }],
    ])('writes nothing for a schedule that was %s after it was read', async (_, change) => {
      const { pod, tick, collections } = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(HOUR);
      const [seen] = await schedulesUpTo(collections, ['hourly'], clock.now());
      await collections.schedules.updateOne({ code: 'hourly' }, { $set: change });
      await tick.tickSchedule(seen!);
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('whose transaction is lost leaves neither row nor step: the next tick of any pod does it', async () => {
      const declaration = slots.declaration('hourly', '0 * * * *');
      const [dying, live] = [await boot(declaration), await boot(declaration)];
      clock.advance(HOUR);
      const enqueue = dying.pod.sideEffect.enqueue.bind(dying.pod.sideEffect);
      dying.pod.sideEffect.enqueue = async (...args) => {
        await enqueue(...args);
        throw new Error('the pod is gone');
      };
      await expect(dying.tick.tickOnce()).rejects.toThrow('the pod is gone');
      expect(await live.pod.jobs.countDocuments()).toBe(0);
      expect((await live.row('hourly')).next_run_at).toEqual(at('01:00:00'));
      await live.tick.tickOnce();
      expect(await slotKeys(live.pod)).toEqual(['hourly:2030-01-01T01:00:00.000Z']);
      expect(dying.pod.eventsOf('slot_enqueued')).toEqual([]);
    });

    it('that fails for one schedule goes on with the others', async () => {
      const { pod, tick } = await boot(
        slots.declaration('first', '0 * * * *'),
        slots.declaration('second', '0 * * * *'),
      );
      clock.advance(HOUR);
      const enqueue = pod.sideEffect.enqueue.bind(pod.sideEffect);
      pod.sideEffect.enqueue = (target, ...rest) =>
        target === 'schedule:first' ? Promise.reject(new Error('no')) : enqueue(target, ...rest);
      await expect(tick.tickOnce()).rejects.toThrow('no');
      expect(await slotKeys(pod)).toEqual(['second:2030-01-01T01:00:00.000Z']);
    });

    it('never repeats a slot for a pod whose clock is a moment behind', async () => {
      const { pod, tick, admin } = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(HOUR);
      await tick.tickOnce();
      await pod.drain();
      const behind = await schedulePod(db, {
        clock: new FakeClock(at('00:59:59').getTime()),
        declare: [slots.declaration('hourly', '0 * * * *')],
      });
      await admin.disable('hourly', 'test');
      await behind.admin.enable('hourly', 'test');
      expect((await behind.row('hourly')).next_run_at).toEqual(at('02:00:00'));
    });
  });

  describe('missed slots', () => {
    it('run_once: of several the newest runs, the others are recorded as missed', async () => {
      const { pod, tick, row } = await boot(slots.declaration('ten', '*/10 * * * *'));
      clock.advance(HOUR + 5 * MINUTE);
      await tick.tickOnce();
      expect(await slotKeys(pod)).toEqual(['ten:2030-01-01T01:00:00.000Z']);
      expect(await row('ten')).toMatchObject({
        next_run_at: at('01:10:00'),
        last_skipped_at: at('00:50:00'),
        last_skip_reason: 'missed',
      });
      expect(pod.eventsOf('slot_skipped')).toEqual([
        {
          type: 'slot_skipped',
          code: 'ten',
          first: at('00:10:00'),
          slot: at('00:50:00'),
          at: 'tick',
          reason: 'missed',
        },
      ]);
    });

    it('run_once: a single late slot runs', async () => {
      const { pod, tick, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(HOUR + 40 * MINUTE);
      await tick.tickOnce();
      await pod.drain();
      expect(slots.times).toEqual(['01:00:00']);
      expect((await row('hourly')).last_skipped_at).toBeUndefined();
    });

    it('skip: more than 60 s late nothing runs, recorded as late', async () => {
      const { pod, tick, row } = await boot(slots.declaration('five', '*/5 * * * *'));
      clock.advance(16 * MINUTE + 1);
      await tick.tickOnce();
      expect(await pod.jobs.countDocuments()).toBe(0);
      expect(await row('five')).toMatchObject({
        next_run_at: at('00:20:00'),
        last_skipped_at: at('00:15:00'),
        last_skip_reason: 'late',
      });
      expect(pod.eventsOf('slot_skipped')).toMatchObject([{ first: at('00:05:00'), slot: at('00:15:00'), at: 'tick' }]);
    });

    it('skip: up to 60 s late the newest runs', async () => {
      const { pod, tick, row } = await boot(slots.declaration('five', '*/5 * * * *'));
      clock.advance(16 * MINUTE);
      await tick.tickOnce();
      expect(await slotKeys(pod)).toEqual(['five:2030-01-01T00:15:00.000Z']);
      expect(await row('five')).toMatchObject({ last_skipped_at: at('00:10:00'), last_skip_reason: 'missed' });
    });

    it('while disabled are not made up for, and a slot enqueued before still runs', async () => {
      const { pod, tick, admin, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(HOUR);
      await tick.tickOnce();
      await admin.disable('hourly', 'test');
      clock.advance(3 * HOUR);
      await tick.tickOnce();
      await pod.drain();
      expect(slots.times).toEqual(['01:00:00']);
      await admin.enable('hourly', 'test');
      expect((await row('hourly')).next_run_at).toEqual(at('05:00:00'));
      await tick.tickOnce();
      expect(await pod.jobs.countDocuments()).toBe(0);
    });

    it('of a paused target pile up to one', async () => {
      const { pod, tick, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      const targets = pod.collections.targets;
      const paused = { state: 'paused', since: at('00:00:00'), reason: 'works', by: 'admin' } as const;
      await targets.insertOne({ _id: 'schedule:hourly', ...paused });
      for (let hour = 0; hour < 4; hour++) {
        clock.advance(HOUR);
        await tick.tickOnce();
      }
      expect(await slotKeys(pod)).toEqual(['hourly:2030-01-01T01:00:00.000Z']);
      expect(await row('hourly')).toMatchObject({
        next_run_at: at('05:00:00'),
        last_skipped_at: at('04:00:00'),
        last_skip_reason: 'target_paused',
      });
      expect(pod.eventsOf('slot_skipped').map(({ reason }) => reason)).toEqual(Array(3).fill('target_paused'));
      await targets.updateOne({ _id: 'schedule:hourly' }, { $set: { state: 'open' } });
      clock.advance(HOUR);
      await tick.tickOnce();
      expect(await slotKeys(pod)).toHaveLength(2);
    });

    it('of a paused target: a run an admin asked for is no slot that waits', async () => {
      const { pod, tick, admin } = await boot(slots.declaration('hourly', '0 * * * *'));
      const paused = { state: 'paused', since: at('00:00:00'), reason: 'works', by: 'admin' } as const;
      await pod.collections.targets.insertOne({ _id: 'schedule:hourly', ...paused });
      await admin.runNow('hourly', 'test');
      clock.advance(HOUR);
      await tick.tickOnce();
      expect(await slotKeys(pod)).toEqual(['hourly:2030-01-01T01:00:00.000Z', expect.stringMatching(/^hourly:now:/)]);
    });

    it('of an override that cannot be read: that schedule alone stands, told once, and goes on when it is mended', async () => {
      const { pod, tick, admin, collections, row } = await boot(
        slots.declaration('bad', '0 * * * *'),
        slots.declaration('good', '0 * * * *'),
      );
      await collections.schedules.updateOne({ code: 'bad' }, { $set: { cron_override: '99 * * * *' } });
      clock.advance(HOUR);
      await tick.tickOnce();
      await tick.tickOnce();
      expect(await slotKeys(pod)).toEqual(['good:2030-01-01T01:00:00.000Z']);
      expect(pod.eventsOf('schedule_broken')).toMatchObject([{ code: 'bad', error: { code: 'invalid_cron' } }]);
      expect(failed(pod)).toEqual([]);
      await admin.clearOverride('bad', 'test');
      expect((await row('bad')).next_run_at).toEqual(at('02:00:00'));
      clock.advance(HOUR);
      await tick.tickOnce();
      expect(await slotKeys(pod)).toContain('bad:2030-01-01T02:00:00.000Z');
    });

    it('of a zone that cannot be read: the same', async () => {
      const { pod, tick, collections } = await boot(slots.declaration('bad', '0 * * * *'));
      await collections.schedules.updateOne({ code: 'bad' }, { $set: { timezone: 'Mars/Olympus' } });
      clock.advance(HOUR);
      await tick.tickOnce();
      expect(pod.eventsOf('schedule_broken')).toMatchObject([{ error: { code: 'invalid_timezone' } }]);
      expect(failed(pod)).toEqual([]);
    });
  });

  describe('a run', () => {
    it('whose pod dies in it is taken back, and run by another pod', async () => {
      const dying = await boot(slots.declaration('hourly', '0 * * * *'));
      let started = (): void => undefined;
      const running = new Promise<void>((resolve) => (started = resolve));
      slots.work = () => {
        started();
        return new Promise(() => undefined);
      };
      clock.advance(HOUR);
      await dying.tick.tickOnce();
      await dying.pod.longLane.startOnce();
      await running;
      await dying.pod.die();
      slots.work = () => undefined;
      const live = await boot(slots.declaration('hourly', '0 * * * *'));
      clock.advance(5 * MINUTE);
      expect(await live.pod.sweeper.sweep()).toBe(1);
      await live.pod.drain();
      expect(slots.times).toEqual(['01:00:00', '01:00:00']);
      expect(await slotRows(live.pod)).toEqual([]);
    });

    const due = async ({ tick }: SchedulePod, ms = HOUR): Promise<void> => {
      clock.advance(ms);
      await tick.tickOnce();
    };

    it('gets its slot as a time, and is noted on the schedule', async () => {
      const all = await boot(slots.declaration('hourly', '0 * * * *'));
      slots.work = () => clock.advance(1_500);
      await due(all);
      await all.pod.drain();
      expect(slots.runs).toMatchObject([
        { slot: at('01:00:00'), job: { payload: { slot: '2030-01-01T01:00:00.000Z' } } },
      ]);
      expect(await all.row('hourly')).toMatchObject({
        last_run_at: at('01:00:00'),
        last_run: { at: at('01:00:00'), ms: 1_500, result: 'success' },
      });
      expect(await all.pod.jobs.countDocuments()).toBe(0);
    });

    it('is not forgotten when the note of the run before it is carried out late', async () => {
      const { collections, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      const noted = (time: string, ms: number): Promise<void> =>
        recordRun(collections, 'hourly', { at: at(time), ms, result: 'success', slot: at(time) });
      await noted('02:00:00', 2);
      await noted('01:00:00', 1);
      expect(await row('hourly')).toMatchObject({ last_run_at: at('02:00:00'), last_run: { ms: 2 } });
      await noted('03:00:00', 3);
      expect(await row('hourly')).toMatchObject({ last_run_at: at('03:00:00'), last_run: { ms: 3 } });
    });

    it('that fails is repeated up to retry_count runs in all, then DEAD; the next slot runs', async () => {
      const all = await boot(slots.declaration('hourly', '0 * * * *', { retry_count: 3 }));
      slots.work = () => {
        throw new Error('no');
      };
      await due(all);
      for (const wait of [0, MINUTE, 2 * MINUTE, 4 * MINUTE]) {
        clock.advance(wait);
        await all.pod.drain();
      }
      expect(slots.runs.map(({ ctx }) => ctx.attempt)).toEqual([1, 2, 3]);
      expect(await slotRows(all.pod)).toMatchObject([{ status: 'DEAD', attempts: 3 }]);
      expect(await all.row('hourly')).toMatchObject({ last_run: { result: 'failure' }, last_run_at: at('01:00:00') });
      slots.work = () => undefined;
      await due(all);
      await all.pod.drain();
      expect(slots.times.at(-1)).toBe('02:00:00');
    });

    it('skip: that starts more than 60 s late does not run: late, when nothing of the schedule ran', async () => {
      const all = await boot(slots.declaration('five', '*/5 * * * *'));
      await due(all, 5 * MINUTE);
      clock.advance(MINUTE + 1);
      await all.pod.drain();
      expect(slots.runs).toEqual([]);
      expect(await all.pod.jobs.countDocuments()).toBe(0);
      expect(await all.row('five')).toMatchObject({ last_skipped_at: at('00:05:00'), last_skip_reason: 'late' });
      expect(all.pod.eventsOf('slot_skipped')).toEqual([
        { type: 'slot_skipped', code: 'five', slot: at('00:05:00'), at: 'run', reason: 'late' },
      ]);
    });

    it('skip: that starts 60 s late runs', async () => {
      const all = await boot(slots.declaration('five', '*/5 * * * *'));
      await due(all, 5 * MINUTE);
      clock.advance(MINUTE);
      await all.pod.drain();
      expect(slots.times).toEqual(['00:05:00']);
    });

    it('skip: that had to wait for the run before is skipped for that reason', async () => {
      const all = await boot(slots.declaration('five', '*/5 * * * *'));
      slots.work = async () => {
        clock.advance(7 * MINUTE); // from 00:05 to 00:12; the slot of 00:10 comes due meanwhile
        slots.work = () => undefined;
        clock.advance(-2 * MINUTE);
        await all.tick.tickOnce();
        clock.advance(2 * MINUTE);
      };
      await due(all, 5 * MINUTE);
      await all.pod.drain();
      expect(slots.times).toEqual(['00:05:00']);
      expect(await all.row('five')).toMatchObject({
        last_skipped_at: at('00:10:00'),
        last_skip_reason: 'previous_slot_running',
      });
    });

    it('run_once: that starts late runs when no newer slot waits, and not when one does', async () => {
      const all = await boot(slots.declaration('ten', '*/10 * * * *'));
      await due(all, 10 * MINUTE);
      await due(all, 10 * MINUTE);
      await due(all, 10 * MINUTE);
      expect(await slotKeys(all.pod)).toHaveLength(3);
      await all.pod.drain();
      expect(slots.times).toEqual(['00:30:00']);
      expect(await all.row('ten')).toMatchObject({
        last_skipped_at: at('00:20:00'),
        last_skip_reason: 'newer_slot_waiting',
      });
      clock.advance(3 * MINUTE);
      await due(all, 7 * MINUTE);
      clock.advance(9 * MINUTE);
      await all.pod.drain();
      expect(slots.times).toEqual(['00:30:00', '00:40:00']);
    });

    it('that is a retry is not held to its time', async () => {
      const all = await boot(slots.declaration('five', '*/5 * * * *'));
      slots.work = ({ ctx }) => {
        if (ctx.attempt === 1) throw new Error('not yet');
      };
      await due(all, 5 * MINUTE);
      await all.pod.drain();
      clock.advance(4 * MINUTE);
      await all.pod.drain();
      expect(slots.times).toEqual(['00:05:00', '00:05:00']);
      expect((await all.row('five')).last_skipped_at).toBeUndefined();
    });

    const retryOne = ({ pod }: SchedulePod, id: JobDoc['_id']) =>
      inTransaction(pod.connection, ({ session }) => reviveDead(session, pod.collections, id, clock.now()));
    const retryMany = ({ pod }: SchedulePod, id: JobDoc['_id']) =>
      inTransaction(pod.connection, ({ session }) => reviveSlice(session, pod.collections, [id], clock.now()));

    it.each([
      ['skip, by itself', 'skip', retryOne],
      ['skip, in bulk', 'skip', retryMany],
      ['run_once while a newer slot waits, by itself', 'run_once', retryOne],
      ['run_once while a newer slot waits, in bulk', 'run_once', retryMany],
    ] as const)('of a DEAD slot that an admin retries is not held to its time: %s', async (_, policy, retry) => {
      const all = await boot(slots.declaration('five', '*/5 * * * *', { retry_count: 1, missed_slot_policy: policy }));
      slots.work = () => {
        throw new Error('no');
      };
      await due(all, 5 * MINUTE);
      await all.pod.drain();
      const [dead] = await slotRows(all.pod);
      expect(dead).toMatchObject({ status: 'DEAD' });
      slots.work = () => undefined;
      clock.advance(2 * MINUTE);
      await retry(all, dead!._id);
      if (policy === 'run_once') await due(all, 3 * MINUTE);
      await all.pod.drain();
      expect(slots.times.filter((time) => time === '00:05:00')).toHaveLength(2);
      expect(slots.runs.find(({ job }) => job.retried_at)).toMatchObject({ ctx: { attempt: 1 } });
      expect(await all.row('five')).not.toHaveProperty('last_skip_reason');
      expect(await all.pod.jobs.countDocuments()).toBe(0);
    });

    it('an admin asked for is an extra one: never late, and no slot', async () => {
      const all = await boot(slots.declaration('five', '*/5 * * * *'));
      await all.admin.runNow('five', 'test');
      clock.advance(3 * MINUTE);
      await all.pod.drain();
      expect(slots.runs).toMatchObject([{ slot: at('00:00:00'), job: { payload: { run_now: true } } }]);
      const row = await all.row('five');
      expect(row.last_run).toMatchObject({ result: 'success' });
      expect(row.last_run_at).toBeUndefined();
      expect(row.next_run_at).toEqual(at('00:05:00'));
    });

    it('whose notes cannot be written ends as it ended', async () => {
      const all = await boot(slots.declaration('hourly', '0 * * * *'));
      const { schedules } = all.collections;
      await due(all);
      Object.defineProperty(schedules, 'updateOne', { value: () => Promise.reject(new Error('away')) });
      await all.pod.drain();
      expect(await all.pod.jobs.countDocuments()).toBe(0);
      expect(failed(all.pod)).toMatchObject([{ loop: 'notes of schedule hourly' }]);
    });

    it('is alone of its code over all pods, while other codes run', async () => {
      let release = (): void => undefined;
      const held = new Promise<void>((resolve) => (release = resolve));
      let started = (): void => undefined;
      const running = new Promise<void>((resolve) => (started = resolve));
      slots.work = ({ job }) => {
        if (job.code !== 'slow') return undefined;
        started();
        return held;
      };
      const declare = [slots.declaration('slow', '*/10 * * * *'), slots.declaration('quick', '*/10 * * * *')];
      const [one, two] = [await boot(...declare), await boot(...declare)];
      await due(one, 10 * MINUTE);
      const first = one.pod.longLane.runOnce();
      await running;
      await due(two, 10 * MINUTE);
      for (let round = 0; round < 3; round++) await two.pod.longLane.runOnce();
      expect(slots.runs.filter(({ job }) => job.code === 'slow')).toHaveLength(1);
      expect(slots.runs.filter(({ job }) => job.code === 'quick').length).toBeGreaterThanOrEqual(2);
      release();
      await first;
      await two.pod.drain();
      expect(slots.runs.filter(({ job }) => job.code === 'slow').map(({ slot }) => slot)).toEqual([
        at('00:10:00'),
        at('00:20:00'),
      ]);
    });
  });

  describe('a change that was computed before a tick decided about the slot', () => {
    /** Holds the next write of the admin's change until the test lets it go; says when it is held. */
    const holdChange = ({ collections }: SchedulePod): { held: Promise<void>; release(): void } => {
      const { schedules } = collections;
      const write = schedules.findOneAndUpdate.bind(schedules) as (...args: unknown[]) => Promise<unknown>;
      let release = (): void => undefined;
      let arrived = (): void => undefined;
      const open = new Promise<void>((resolve) => (release = resolve));
      const held = new Promise<void>((resolve) => (arrived = resolve));
      schedules.findOneAndUpdate = (async (...args: unknown[]) => {
        schedules.findOneAndUpdate = write as never;
        arrived();
        await open;
        return write(...args);
      }) as never;
      return { held, release: () => release() };
    };

    it.each([
      ['an override', '0 */1 * * *', (pod: SchedulePod) => pod.admin.override('hourly', '0 */1 * * *', 'test')],
      ['the end of an override', undefined, (pod: SchedulePod) => pod.admin.clearOverride('hourly', 'test')],
    ])('%s does not bring back the slot that ran', async (_, cron_override, change) => {
      const declaration = slots.declaration('hourly', '0 * * * *');
      const [stalled, live] = [await boot(declaration), await boot(declaration)];
      if (!cron_override) await live.admin.override('hourly', '0 */1 * * *', 'test');
      clock.advance(HOUR - SECOND);
      const { held, release } = holdChange(stalled);
      const changing = change(stalled);
      await held;
      clock.advance(SECOND);
      await live.tick.tickOnce();
      await live.pod.drain();
      release();
      await changing;
      await live.tick.tickOnce();
      await live.pod.drain();
      expect(slots.times).toEqual(['01:00:00']);
      const row = await live.row('hourly');
      expect(row.next_run_at).toEqual(at('02:00:00'));
      expect(row.cron_override).toBe(cron_override);
    });
  });

  describe('the store', () => {
    it.each([
      ['its expression', { cron: '30 * * * *' }],
      ['its zone', { timezone: 'Europe/Berlin' }],
      ['its override', { cron_override: '30 * * * *' }],
      ['whether it is enabled', { enabled: false }],
      ['the newest slot that was decided about', { last_slot_at: at('01:00:00') }],
    ])('changes nothing of a row where somebody changed %s since it was read', async (_, change) => {
      const { pod, collections, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      const seen = await row('hourly');
      await collections.schedules.updateOne({ code: 'hourly' }, { $set: change });
      const before = await row('hourly');
      const wish = { enabled: true, next_run_at: at('00:59:00') };
      const byAdmin = await inTransaction(pod.connection, ({ session }) =>
        changeSchedule(collections, seen, wish, clock.now(), session),
      );
      const { code, cron, timezone, missed_slot_policy } = seen;
      const declared = { code, cron, timezone, missed_slot_policy, retry_count: 9 };
      const byBoot = await updateDeclared(collections, seen, declared, at('00:59:00'), clock.now());
      expect([byAdmin, byBoot]).toEqual([null, false]);
      expect(await row('hourly')).toEqual(before);
    });

    it('changes a row whose override somebody set to null: it keeps no pod from booting', async () => {
      const first = await boot(slots.declaration('hourly', '0 * * * *'));
      await first.collections.schedules.updateOne({ code: 'hourly' }, { $set: { cron_override: null as never } });
      await first.pod.close();
      const { admin, row } = await boot(slots.declaration('hourly', '0 * * * *', { retry_count: 7 }));
      expect(await row('hourly')).toMatchObject({ retry_count: 7 });
      await admin.clearOverride('hourly', 'test');
      expect(await row('hourly')).not.toHaveProperty('cron_override');
    });

    it('an older skip leaves the newer one and its reason', async () => {
      const { collections, row } = await boot(slots.declaration('hourly', '0 * * * *'));
      await recordSkip(collections, 'hourly', at('02:00:00'), 'late');
      await recordSkip(collections, 'hourly', at('01:00:00'), 'previous_slot_running');
      expect(await row('hourly')).toMatchObject({ last_skipped_at: at('02:00:00'), last_skip_reason: 'late' });
    });

    it('of twenty advances from the same read one matches', async () => {
      const { pod, collections } = await boot(slots.declaration('hourly', '0 * * * *'));
      const [seen] = await schedulesUpTo(collections, ['hourly'], at('01:00:00'));
      const step = { newest: at('01:00:00'), next: at('02:00:00'), now: clock.now() };
      const won = await Promise.all(
        Array.from({ length: 20 }, () =>
          inTransaction(pod.connection, ({ session }) => advance(collections, seen!, step, session)),
        ),
      );
      expect(won.filter(Boolean)).toHaveLength(1);
    });
  });
});
