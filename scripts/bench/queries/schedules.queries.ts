// Schedules: what ticks, boots and admins ask and write.
import * as schedules from '../../../src/schedules/schedules.store.js';
import { DAILY, query, SMALL, type EngineQuery, type Loaded } from './query.js';

const PER_SCHEDULE = 'a row per schedule that was ever declared';
/** The row as nobody has it. */
const outdated = ({ schedule }: Loaded) => ({ ...schedule, cron: 'another' });

export const SCHEDULE_QUERIES: readonly EngineQuery[] = [
  query({
    name: 'schedules: all',
    of: schedules.allSchedules,
    ask: (send, { schedules: c }) => send(c),
    index: 'code',
    examined: SMALL + 1,
    whole: PER_SCHEDULE,
  }),
  query({
    name: 'schedules: enabled ones',
    of: schedules.enabledCodes,
    ask: (send, { schedules: c }) => send(c, SMALL),
    index: 'due',
    examined: SMALL + 1,
    whole: PER_SCHEDULE,
  }),
  query({
    name: 'schedules: one',
    of: schedules.findSchedule,
    ask: (send, { schedules: c }) => send(c, 's7'),
    index: 'code',
    examined: 1,
  }),
  query({
    name: 'schedules: what is due at a tick',
    of: schedules.schedulesUpTo,
    ask: (send, { schedules: c, now }) => send(c, ['s0', 's2', 's40'], now),
    index: 'due',
    // Those that are due, this pod's or not.
    examined: 2 * 20,
  }),
  query({
    name: 'schedules: new in code',
    of: schedules.updateDeclared,
    ask: (send, loaded) => send(loaded.schedules, outdated(loaded), declared(loaded), undefined, loaded.now),
    index: 'code',
    examined: 1,
  }),
  query({
    name: 'schedules: past its due slots',
    of: schedules.advance,
    ask: (send, { schedules: c, schedule, now, later }, session) =>
      send(c, schedule, { newest: now, next: later, now, skipped: { reason: 'late', first: now, last: now } }, session),
    index: ['code', 'due'],
    // Those that are due at the same moment.
    examined: 20,
  }),
  query({
    name: 'schedules: is its target paused?',
    of: schedules.isPaused,
    ask: (send, { schedules: c }) => send(c, 'explain:7'),
    index: '_id_',
    examined: 1,
  }),
  query({
    name: 'schedules: does a slot wait?',
    of: schedules.slotWaits,
    ask: (send, { schedules: c }) => send(c, DAILY),
    index: 'due_long',
    examined: 2 * 2,
  }),
  query({
    name: 'schedules: does a newer slot wait?',
    of: schedules.slotWaits,
    ask: (send, { schedules: c, now }) => send(c, DAILY, now),
    index: 'due_long',
    examined: 2 * 2,
  }),
  query({
    name: 'schedules: a skipped slot',
    of: schedules.recordSkip,
    ask: (send, { schedules: c }) => send(c, 's7', new Date(0), 'late'),
    index: 'code',
    examined: 1,
  }),
  query({
    name: 'schedules: the last run',
    of: schedules.recordRun,
    ask: (send, { schedules: c, past }) => send(c, 's7', { at: past, ms: 1, result: 'success' }),
    index: 'code',
    examined: 1,
  }),
  query({
    name: 'schedules: an admin changes one',
    of: schedules.changeSchedule,
    ask: (send, loaded, session) => send(loaded.schedules, loaded.schedule, { enabled: false }, loaded.now, session),
    index: 'code',
    examined: 1,
  }),
];

function declared({ schedule }: Loaded): Parameters<typeof schedules.updateDeclared>[2] {
  const { code, cron, timezone, missed_slot_policy, retry_count } = schedule;
  return { code, cron, timezone, missed_slot_policy, retry_count };
}
