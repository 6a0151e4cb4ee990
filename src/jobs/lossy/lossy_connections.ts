/**
 * Bull's connections, opened when Bull first asks for one and ended by us: Bull's own end waits for a Redis that may be
 * away, and connects once more on its way out.
 */
import { Inject, Injectable } from '@nestjs/common';
import { Redis } from 'ioredis';
import { forgetSilenceAtClose, RedisLink, SAFE_REDIS } from '../../common/redis/redis_link.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';

export type BullConnection = 'client' | 'subscriber' | 'bclient';

/** Bull asks its blocking connection for a job every 5 s, so silence beyond this is a dead peer. */
const BLOCKED_SILENCE_MS = 30_000;

@Injectable()
export class LossyConnections {
  private link: RedisLink | undefined;
  private readonly others = new Map<BullConnection, Redis>();
  private readonly waiting: (() => void)[] = [];
  private closed = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JobsEvents) private readonly events: JobsEvents,
  ) {}

  /** The connection jobs are handed over through; opened by the first call. */
  get main(): RedisLink {
    this.link ??= new RedisLink(
      this.config.redis.url,
      (state, error) => {
        this.events.emit({ type: 'redis_state', use: 'lossy', state, error });
        if (state === 'up') for (const callback of this.waiting.splice(0)) callback();
      },
      { connectionName: 'sidelane-lossy' },
    );
    return this.link;
  }

  /** Calls back once Redis is there, now or later. */
  whenUp(callback: () => void): void {
    if (this.main.up) callback();
    else this.waiting.push(callback);
  }

  /** What Bull calls for its connections. */
  open(type: BullConnection): Redis {
    if (type === 'client') return this.main.client;
    // Bull insists on no ready check and endless retries for these two: they carry no job that could be sent late.
    const client = new Redis(this.config.redis.url, {
      ...SAFE_REDIS,
      enableReadyCheck: false,
      maxRetriesPerRequest: null,
      ...(type === 'bclient' && { socketTimeout: BLOCKED_SILENCE_MS }),
    });
    forgetSilenceAtClose(client);
    client.on('error', () => undefined); // the main connection tells the state
    const connect = client.connect.bind(client);
    client.connect = () => (this.closed || !this.others.has(type) ? Promise.reject(new Error('closed')) : connect());
    this.others.set(type, client);
    return client;
  }

  /** Cuts the blocking connection, so that no further job is taken; the others go on. */
  stopTaking(): void {
    this.waiting.length = 0;
    const blocking = this.others.get('bclient');
    this.others.delete('bclient');
    blocking?.disconnect();
  }

  /** Ends every connection. What was sent through the main one is answered first, if Redis answers within `ms`. */
  async close(answeredWithin: (answer: Promise<unknown>) => Promise<unknown>): Promise<void> {
    this.closed = true;
    this.waiting.length = 0;
    if (this.link?.up) await answeredWithin(this.link.client.ping().catch(() => undefined));
    this.link?.close();
    for (const client of this.others.values()) client.disconnect();
    this.others.clear();
  }
}
