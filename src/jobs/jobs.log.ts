/** Every log text of the engine, worded from its events. Never a payload, a key or a credential. */
import { Inject, Injectable, Logger } from '@nestjs/common';
import { errorText } from '../common/errors.js';
import { JobsEvents, type JobsEvent, type RowRef } from './jobs.events.js';

@Injectable()
export class JobsLog {
  private readonly logger = new Logger('Sidelane');

  constructor(@Inject(JobsEvents) events: JobsEvents) {
    events.on((event) => this.write(event));
  }

  private write(event: JobsEvent): void {
    switch (event.type) {
      case 'run_ended':
        return this.logger.log(`job run ${row(event.row)} duration_ms=${Math.round(event.ms)} result=${event.result}`);
      case 'dead':
        return this.logger.error(`job dead alert ${row(event.row)} reason=${JSON.stringify(event.reason)}`);
      case 'outcome_lost':
        return this.logger.warn(
          `outcome lost target=${event.target} partition=${event.partition} rows=${event.count}: somebody else had ended them`,
        );
      case 'outcome_kept':
        return this.logger.error(
          `outcome not written yet target=${event.target}${event.partition === undefined ? '' : ` partition=${event.partition}`}: ${errorText(event.error)}`,
        );
      case 'round_failed':
        return this.logger.error(
          `round failed target=${event.target} partition=${event.partition}: ${errorText(event.error)}`,
        );
      case 'loop_failed':
        return this.logger.error(`loop ${event.loop} failed and goes on: ${errorText(event.error)}`);
      case 'partitions_taken':
        return this.logger.log(`partitions taken: ${event.partitions.join(' ')}`);
      case 'partitions_released':
        return this.logger.log(`partitions released: ${event.partitions.join(' ')}`);
      case 'partitions_lost':
        return this.logger.warn(`partitions lost: ${event.partitions.join(' ')}`);
      case 'taken_over':
        return this.logger.warn(
          `taken over in flight target=${event.target} partition=${event.partition} dead=${event.dead} counted=${event.counted}`,
        );
      case 'target_paused':
        return this.logger.warn(
          `target paused target=${event.target} by=${event.by} ms=${event.ms ?? 'until_resumed'} reason=${JSON.stringify(event.reason)}`,
        );
      case 'target_resumed':
        return this.logger.log(`target resumed target=${event.target}`);
      case 'claim_lost':
        return this.logger.warn(
          `claim lost target=${event.target} rows=${event.count} at=${event.where} ids=${event.rows.map((lost) => lost.id).join(' ')}`,
        );
      case 'reclaimed':
        return this.logger.warn(
          `reclaimed after their lease: again=${event.again} dead=${event.dead} cancelled=${event.cancelled}`,
        );
      case 'cancel_requested':
        return this.logger.log(`job cancel requested id=${event.id}`);
      case 'skipped':
        return event.rows.forEach((skipped) => this.logger.log(`job skipped ${row(skipped)} result=skipped`));
      case 'cancelled':
        return this.logger.log(`job cancelled ${row(event.row)} result=cancelled`);
      case 'on_dead_failed':
        return this.logger.error(`on_dead failed ${row(event.row)}: ${errorText(event.error)}`);
      case 'slot_skipped':
        return this.logger.warn(
          `schedule slot skipped code=${event.code} slot=${event.slot.toISOString()}${event.first ? ` first=${event.first.toISOString()}` : ''} at=${event.at} reason=${event.reason}`,
        );
      case 'schedule_broken':
        return this.logger.error(`schedule cannot be used code=${event.code}: ${errorText(event.error)}`);
      case 'lossy_drops_summed':
        return this.logger.warn(`lossy jobs dropped ${event.drops.map(drop).join(' ')}`);
      case 'redis_state':
        return event.state === 'up'
          ? this.logger.log(`redis is up use=${event.use}`)
          : this.logger.warn(`redis is down use=${event.use}: ${errorText(event.error)}`);
      case 'hinted':
      case 'hint_ignored':
      case 'lossy_dropped':
      case 'enqueued':
      case 'run_started':
      case 'target_probed':
      case 'claimed':
      case 'target_ramping':
      case 'slot_enqueued':
        return;
    }
  }
}

function drop({ target, count, reason }: { target: string; count: number; reason: string }): string {
  return `target=${target} reason=${reason} count=${count}`;
}

function row(ref: RowRef): string {
  return `code=${ref.code} target=${ref.target} dedupe_key=${ref.dedupe_key} attempts=${ref.attempts}`;
}
