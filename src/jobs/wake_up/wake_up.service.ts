/**
 * Wake-ups: what was committed here wakes the lanes of this pod at once, and those of the others through Redis pub/sub
 * where Redis is configured. Hints are hints (invariant 12): a lost one costs a poll's wait and nothing else. So this
 * never waits, never throws, keeps one message under way at a time and nothing while Redis is away, and never passes on
 * what it heard.
 */
import { Inject, Injectable, type OnApplicationBootstrap, type OnApplicationShutdown } from '@nestjs/common';
import { RedisLink } from '../../common/redis/redis_link.js';
import { JobsEvents, type HintedCell } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { POD, type Pod } from '../lanes/pod.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { decodeWake, encodeWake, PendingCells, wakeChannel } from './wake_message.js';

@Injectable()
export class WakeUp implements OnApplicationBootstrap, OnApplicationShutdown {
  private readonly channel: string;
  private readonly pending = new PendingCells();
  private publisher: RedisLink | undefined;
  private subscriber: RedisLink | undefined;
  private publishing = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) collections: JobsCollections,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {
    this.channel = wakeChannel(collections.jobs.dbName);
    if (config.hints === 'on') {
      events.on((event) => {
        if (event.type === 'enqueued') this.committed(event.rows);
      });
    }
  }

  /** A pod that only enqueues tells the others, too. In `manual` mode nothing runs by itself, this neither. */
  onApplicationBootstrap(): void {
    const { hints, workers, redis } = this.config;
    if (hints === 'off' || workers === 'manual' || !redis.url) return;
    this.publisher = new RedisLink(
      redis.url,
      // One line per change, though there are two connections: they share their fate, or nearly.
      (state, error) => this.events.emit({ type: 'redis_state', use: 'wake_up', state, error }),
      { connectionName: 'sidelane-wake' },
    );
  }

  /** Hears the other pods from now on. Only for a pod whose lanes run. */
  listen(): void {
    if (!this.publisher) return;
    const link = new RedisLink(this.config.redis.url, () => undefined, { connectionName: 'sidelane-listen' });
    this.subscriber = link;
    link.client.on('message', (_channel, text) => this.heard(text));
    // On every new connection; one that dies meanwhile comes back, and with it this.
    link.client.on('ready', () => void link.client.subscribe(this.channel).catch(() => undefined));
  }

  /** A pod that stops has no use for hints. */
  deafen(): void {
    this.subscriber?.close();
  }

  onApplicationShutdown(): void {
    this.deafen();
    this.publisher?.close();
    this.publisher = undefined;
  }

  private committed(cells: HintedCell[]): void {
    this.events.emit({ type: 'hinted', cells });
    if (!this.publisher?.up) return;
    this.pending.add(cells);
    // After the commit's other hooks, so that what they announce goes out in the same message.
    if (!this.publishing) setImmediate(() => void this.publish());
  }

  /** One message at a time: what is committed meanwhile collects, and "all" bounds it. */
  private async publish(): Promise<void> {
    if (this.publishing) return;
    this.publishing = true;
    try {
      while (!this.pending.empty && this.publisher?.up) {
        const text = encodeWake({ from: this.pod.id, cells: this.pending.take() });
        await this.publisher.client.publish(this.channel, text);
      }
    } catch {
      // Redis went away or refuses: the other pods find the rows with their next poll.
    } finally {
      this.publishing = false;
      this.pending.take();
    }
  }

  private heard(text: string): void {
    const message = decodeWake(text);
    if (!message) this.events.emit({ type: 'hint_ignored' });
    else if (message.from !== this.pod.id)
      this.events.emit({ type: 'hinted', cells: message.cells === 'all' ? 'all' : [...message.cells] });
  }
}
