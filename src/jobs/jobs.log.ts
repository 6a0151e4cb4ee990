/**
 * Every log text of the engine, worded from its events: one JSON object per line, through Nest's logger. Never a payload,
 * a key, a header or a credential; error texts are cut and their URLs masked (policy/log_text.ts). `dedupe_key` is logged:
 * it is how an operator finds a row, so it must not hold a secret.
 */
import { Inject, Injectable, Logger } from '@nestjs/common';
import { JobsEvents, type JobsEvent, type RowRef } from './jobs.events.js';
import { logText } from './policy/log_text.js';

export interface LogLine {
  readonly level: 'log' | 'warn' | 'error';
  readonly line: { readonly msg: string } & Readonly<Record<string, unknown>>;
}

@Injectable()
export class JobsLog {
  private readonly logger = new Logger('Sidelane');

  constructor(@Inject(JobsEvents) events: JobsEvents) {
    events.on((event) => {
      if (event.type === 'run_ended' && !Logger.isLevelEnabled('log')) return; // one per row: not even worded
      for (const { level, line } of linesOf(event)) this.logger[level](JSON.stringify(line));
    });
  }
}

/** What is said about an event; nothing about those that happen for every row beside its run. */
export function linesOf(event: JobsEvent): LogLine[] {
  switch (event.type) {
    case 'run_ended':
      return log('job run', { ...named(event.row), duration_ms: Math.round(event.ms), result: event.result });
    case 'dead':
      return error('job dead alert', { ...named(event.row), reason: logText(event.reason) });
    case 'on_dead_failed':
      return error('on_dead failed', { ...named(event.row), error: logText(event.error) });
    case 'cancel_requested':
      return log('job cancel requested', { id: event.id });
    case 'skipped':
      return event.rows.flatMap((row) => log('job skipped', { ...named(row), result: 'skipped' }));
    case 'cancelled':
      return log('job cancelled', { ...named(event.row), result: 'cancelled' });
    case 'outcome_lost':
      return warn('outcome lost: somebody else had ended these rows', {
        ...pick(event, 'target', 'partition'),
        rows: event.count,
      });
    case 'outcome_kept':
      return error('outcome not written yet', failed(event, 'target', 'partition'));
    case 'claim_lost': {
      const ids = event.rows.map(({ id }) => id);
      return warn('claim lost', { target: event.target, at: event.where, rows: event.count, ids });
    }
    case 'reclaimed':
      return warn('reclaimed after their lease', pick(event, 'again', 'dead', 'cancelled'));
    case 'round_failed':
      return error('round failed', failed(event, 'target', 'partition'));
    case 'loop_failed':
      return error('loop failed and goes on', failed(event, 'loop'));
    case 'boot_waits':
      return warn('boot waits for the database', {
        at_most_s: Math.ceil(event.left_ms / 1_000),
        error: logText(event.error),
      });
    case 'partitions_taken':
      return log('partitions taken', pick(event, 'partitions'));
    case 'partitions_released':
      return log('partitions released', pick(event, 'partitions'));
    case 'partitions_lost':
      return warn('partitions lost', pick(event, 'partitions'));
    case 'taken_over':
      return warn('taken over in flight', pick(event, 'partition', 'target', 'dead', 'counted'));
    case 'target_paused':
      return warn('target paused', {
        ...pick(event, 'target', 'by'),
        ms: event.ms ?? 'until_resumed',
        reason: logText(event.reason),
      });
    case 'target_resumed':
      return log('target resumed', pick(event, 'target'));
    case 'slot_skipped':
      return warn('schedule slot skipped', pick(event, 'code', 'slot', 'at', 'reason'));
    case 'schedule_broken':
      return error('schedule cannot be used', failed(event, 'code'));
    case 'lossy_drops_summed':
      return warn('lossy jobs dropped', pick(event, 'drops'));
    case 'redis_state':
      return event.state === 'up'
        ? log('redis is up', pick(event, 'use'))
        : warn('redis is down', failed(event, 'use'));
    case 'health_changed':
      return event.state === 'ended'
        ? log('health problem is over', pick(event, 'problem'))
        : error('health problem', pick(event, 'problem', 'state', 'detail'));
    case 'hinted':
    case 'hint_ignored':
    case 'lossy_dropped':
    case 'enqueued':
    case 'rate_limited':
    case 'run_started':
    case 'target_probed':
    case 'claimed':
    case 'target_ramping':
    case 'slot_enqueued':
      return [];
  }
}

type Facts = Readonly<Record<string, unknown>>;

const log = (msg: string, facts: Facts): LogLine[] => [{ level: 'log', line: { msg, ...facts } }];
const warn = (msg: string, facts: Facts): LogLine[] => [{ level: 'warn', line: { msg, ...facts } }];
const error = (msg: string, facts: Facts): LogLine[] => [{ level: 'error', line: { msg, ...facts } }];

/** Only what is named gets into a line: an event that grows a field does not leak it. */
function pick<T extends object, K extends keyof T & string>(event: T, ...names: K[]): Facts {
  return Object.fromEntries(names.map((name) => [name, event[name]]));
}

function failed<T extends { error?: unknown }, K extends keyof T & string>(event: T, ...names: K[]): Facts {
  return { ...pick(event, ...names), error: logText(event.error) };
}

function named({ code, target, dedupe_key, attempts }: RowRef): Facts {
  return { code, target, dedupe_key, attempts };
}
