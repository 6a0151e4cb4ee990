/**
 * One connection to Redis that may be away at any time. It connects and connects again by itself, tells each change of
 * its state once, and keeps nothing for later: a command that cannot be sent now, or whose connection broke, fails now.
 * So no memory grows while Redis is away and nothing late is sent when it returns. Never an unhandled error.
 */
import { Redis, type RedisOptions } from 'ioredis';

export type LinkState = 'up' | 'down';

const CONNECT_MS = 5_000;
/** A peer that says nothing to a command for this long is taken for gone. */
const SILENCE_MS = 5_000;
const KEEP_ALIVE_MS = 10_000;
/** How long a socket may take to end once we gave it up. */
const END_MS = 100;
const MAX_RETRY_MS = 2_000;

/** What every connection of ours has in common, Bull's own ones included. */
export const SAFE_REDIS: RedisOptions = {
  connectTimeout: CONNECT_MS,
  disconnectTimeout: END_MS,
  keepAlive: KEEP_ALIVE_MS,
  disableClientInfo: true,
  retryStrategy: (times) => Math.min(50 * 2 ** Math.min(times, 10), MAX_RETRY_MS),
};

export class RedisLink {
  readonly client: Redis;
  /** Resolves when the first attempt to connect has ended, one way or the other. */
  readonly tried: Promise<void>;
  /** Undefined until the first attempt has ended. */
  state: LinkState | undefined;
  /** What went wrong last. */
  lastError: Error | undefined;
  private closed = false;
  private firstEnd = (): void => undefined;

  constructor(
    url: string,
    private readonly onState: (state: LinkState, error?: unknown) => void,
    options: RedisOptions = {},
  ) {
    this.tried = new Promise((resolve) => void (this.firstEnd = resolve));
    this.client = new Redis(url, {
      ...SAFE_REDIS,
      enableOfflineQueue: false,
      maxRetriesPerRequest: 0,
      autoResendUnfulfilledCommands: false,
      autoResubscribe: false,
      socketTimeout: SILENCE_MS,
      ...options,
    });
    forgetSilenceAtClose(this.client);
    this.client.on('error', (error) => void (this.lastError = withoutCommand(error)));
    this.client.on('ready', () => this.change('up'));
    this.client.on('close', () => this.change('down'));
  }

  /** Whether a command sent now has a connection. */
  get up(): boolean {
    return this.state === 'up' && this.client.status === 'ready';
  }

  /** Ends the connection now; commands without an answer fail. */
  close(): void {
    this.closed = true;
    this.client.disconnect();
    this.firstEnd();
  }

  private change(state: LinkState): void {
    if (this.closed) return;
    const before = this.state;
    this.state = state;
    this.firstEnd();
    if (state === before) return;
    this.onState(state, state === 'down' ? (this.lastError ?? new Error('the connection was closed')) : undefined);
    if (state === 'up') this.lastError = undefined;
  }
}

/**
 * The client's timer for a silent peer is not of one connection: when that breaks with a command unanswered, it runs on,
 * ends the next connection however well that is, and until then watches nothing.
 */
export function forgetSilenceAtClose(client: Redis): void {
  const timed = client as unknown as { socketTimeoutTimer: NodeJS.Timeout | undefined };
  client.on('close', () => {
    clearTimeout(timed.socketTimeoutTimer);
    timed.socketTimeoutTimer = undefined;
  });
}

/** The client's errors carry the command they speak of, a password or a payload among its arguments. */
function withoutCommand({ name, message }: Error): Error {
  const error = new Error(message || name);
  error.name = name;
  return error;
}
