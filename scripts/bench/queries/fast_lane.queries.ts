// The fast lane, and what both lanes write when runs end.
import * as fast from '../../../src/jobs/store/fast_lane.store.js';
import * as outcome from '../../../src/jobs/store/outcome.store.js';
import * as update from '../../../src/jobs/store/outcome_update.js';
import { BATCH, FAST, HOUR_MS, LIGHT, PARTITIONS, query, type EngineQuery, type Loaded } from './query.js';

const COLD = 256;
const cell = (target: string) => ({ target, partition: 0 });
const everyPartition = Array.from({ length: PARTITIONS }, (_, partition) => partition);
const record = ({ now }: Loaded): update.RunRecord => ({
  token: 'mark',
  pod: 'pod',
  now,
  ms: 1,
  class: 'answered',
  history_size: 10,
});

/** Reads stop at their limit; writes touch the rows they name. Twice of that is the bound, as everywhere. */
export const FAST_LANE_QUERIES: readonly EngineQuery[] = [
  query({
    name: 'fast lane: cold check over all cells',
    of: fast.findCellsWithWork,
    ask: (send, { jobs, now }) => send(jobs, { targets: [FAST, LIGHT], partitions: everyPartition }, now, COLD),
    index: 'due_fast',
    examined: 2 * COLD,
  }),
  query({
    name: 'fast lane: cold check of one target',
    of: fast.findCellsWithWork,
    ask: (send, { jobs, now }) => send(jobs, { targets: [FAST], partitions: everyPartition }, now, COLD),
    index: 'due_fast',
    examined: 2 * COLD,
  }),
  query({
    name: 'fast lane: probe of a backlog',
    of: fast.probeDueKeys,
    ask: (send, { jobs, now }) => send(jobs, cell(FAST), now, BATCH),
    index: 'due_fast',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: probe among waiting rows',
    of: fast.probeDueKeys,
    ask: (send, { jobs, now }) => send(jobs, cell(LIGHT), now, BATCH),
    index: 'due_fast',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: ordered read, first page of a walk',
    of: fast.readOrdered,
    ask: (send, { jobs }) => send(jobs, cell(FAST), { after: '' }, BATCH),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: ordered read, in the middle of a walk',
    of: fast.readOrdered,
    ask: (send, { jobs }) => send(jobs, cell(FAST), { after: 'k140' }, BATCH),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: ordered read of named keys',
    of: fast.readOrdered,
    ask: (send, { jobs }) => send(jobs, cell(LIGHT), { keys: ['ready0', 'ready4', 'ready8'] }, BATCH),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: followers of a waiting head',
    of: fast.deferFollowers,
    ask: (send, { jobs, fast: [head], now }) => send(jobs, [head!], new Date(now.getTime() - 2 * HOUR_MS)),
    index: 'in_order',
    // The head's own key, which has at most rows / keys rows here.
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: heads that are gone',
    of: fast.goneHeads,
    // A row of the other lane is none: both commands are sent, and nothing changes.
    ask: (send, { jobs, running: [none], now }) => send(jobs, [none!], now),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'fast lane: release of followers',
    of: fast.releaseFollowers,
    ask: (send, { jobs, fast: [head], now }) => send(jobs, [head!], new Date(now.getTime() + 2 * HOUR_MS)),
    index: 'in_order',
    examined: 2 * BATCH,
  }),
  query({
    name: 'fast lane: rows of a dead owner',
    of: fast.findUnsettled,
    ask: (send, { jobs, fast: rows }) =>
      send(
        jobs,
        rows.map(({ _id }) => _id),
        'mark',
      ),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  // Under claims and attempts that are not those of the rows, so that nothing of the collection changes.
  query({
    name: 'outcome: rows that did not start',
    of: outcome.writeOutcomes,
    ask: (send, { jobs, fast: rows }) => send(jobs, update.stampOperations(rows.map(another), 'mark')),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'outcome: a failure',
    of: outcome.writeOutcomes,
    ask: (send, loaded) =>
      send(
        loaded.jobs,
        update.failureOperations(
          another(loaded.fast[0]!),
          { do: 'retry', attempts: 1, next_run_at: loaded.later, error: 'no' },
          record(loaded),
        ),
      ),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: what has become of rows',
    of: outcome.findEnds,
    ask: (send, { jobs, fast: rows }) => send(jobs, rows),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'outcome: a run postponed',
    of: outcome.writeOutcomes,
    ask: (send, { jobs, running, later }) => send(jobs, update.postponeOperations(another(running[0]!), later)),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: a finished row that is kept',
    of: outcome.writeOutcomes,
    ask: (send, { jobs, fast: [row], now }) => send(jobs, [update.doneOperation(another(row!), now, HOUR_MS)]),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: the judgement of a takeover',
    of: outcome.writeOutcomes,
    ask: (send, loaded) =>
      send(loaded.jobs, [
        update.takeoverOperation(another(loaded.fast[0]!), { do: 'count', crashes: 1 }, record(loaded)),
      ]),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: the judgement of an expired claim',
    of: outcome.writeOutcomes,
    ask: (send, loaded) =>
      send(loaded.jobs, [
        update.reclaimOperation(another(loaded.running[0]!), { do: 'count', crashes: 1 }, record(loaded)),
      ]),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: a takeover that makes a row DEAD, with on_dead',
    of: outcome.writeOutcomeIn,
    ask: (send, loaded, session) =>
      send(session, loaded.jobs, update.takeoverOperation(loaded.fast[0]!, { do: 'dead', crashes: 1 }, record(loaded))),
    index: '_id_',
    examined: 2,
  }),
  ...(['fast', 'running'] as const).map((of) =>
    query({
      name: `outcome: a ${of === 'fast' ? 'fast' : 'long'} row that fails for the last time, with on_dead`,
      of: outcome.writeOutcomeIn,
      ask: (send, loaded, session) => {
        const dead = { do: 'dead', attempts: 6, error: 'no' } as const;
        const [failure] = update.failureOperations(loaded[of][0]!, dead, record(loaded));
        return send(session, loaded.jobs, failure as Parameters<typeof send>[2]);
      },
      index: '_id_',
      examined: 2,
    }),
  ),
  query({
    name: 'outcome: ctx.complete',
    of: outcome.finishIn,
    ask: (send, { jobs, running }, session) => send(session, jobs, running[0]!, undefined),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: ctx.complete of a row that is kept',
    of: outcome.finishIn,
    ask: (send, { jobs, running, now }, session) => send(session, jobs, running[0]!, { now, keep_done_ms: HOUR_MS }),
    index: '_id_',
    examined: 2,
  }),
  query({
    name: 'outcome: rows that succeeded, fast lane',
    of: outcome.deleteFinished,
    // Rows that are not PENDING: nothing goes.
    ask: (send, { jobs, kept }) => send(jobs, kept),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'outcome: rows that succeeded, long lane',
    of: outcome.deleteFinished,
    ask: (send, { jobs, running }) => send(jobs, running.map(another)),
    index: '_id_',
    examined: 2 * BATCH,
  }),
  query({
    name: 'outcome: rows that succeeded, under several claims',
    of: outcome.deleteFinished,
    ask: (send, { jobs, running }) =>
      send(
        jobs,
        running.map((row, i) => ({ ...row, claim_token: `another${i % 3}` })),
      ),
    index: '_id_',
    examined: 2 * BATCH,
  }),
];

/** The same row as somebody knew it before it changed. */
function another<R extends update.ReadRow>(row: R): R {
  return { ...row, attempts: 99, outcome_token: 'another', claim_token: 'another' };
}
