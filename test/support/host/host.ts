/** Starts the host application as a process, and reads what it says. */
import { startChild, type Child } from '../child.js';

export interface HostSettings {
  readonly db: string;
  readonly uri?: string;
  readonly order?: 'workers_first' | 'workers_last';
  readonly handler?: string;
  readonly options?: object;
  readonly mongoose?: object;
  readonly env?: Record<string, string>;
}

export interface Line {
  /** Milliseconds since the first signal; none before it. */
  readonly at: number | undefined;
  readonly what: string;
  readonly detail: string;
}

export interface HostEnd {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  /** From the first signal until the process was gone. */
  readonly ms: number;
}

export class Host {
  private constructor(readonly child: Child) {}

  static start(settings: HostSettings): Host {
    return new Host(
      startChild('test/support/host/host.main.ts', {
        NODE_ENV: 'production', // the Kafka client has other defaults in tests
        MONGO_URI: settings.uri ?? process.env['MONGO_URI']!,
        DB: settings.db,
        QUEUE_REDIS_URL: '',
        ORDER: settings.order ?? 'workers_last',
        HANDLER: settings.handler ?? '0',
        OPTIONS: JSON.stringify({ partitions: 8, ...settings.options }),
        MONGOOSE: JSON.stringify(settings.mongoose ?? {}),
        ...settings.env,
      }),
    );
  }

  /** Answers where it listens. */
  async up(): Promise<string> {
    await this.child.said(' listening ');
    return `http://127.0.0.1:${this.lines().find(({ what }) => what === 'listening')!.detail}`;
  }

  lines(): Line[] {
    return this.child
      .output()
      .split('\n')
      .flatMap((text) => {
        const found = /^(-|\d+) (\w+) (.*)$/.exec(text);
        return found
          ? [{ at: found[1] === '-' ? undefined : Number(found[1]), what: found[2]!, detail: found[3]! }]
          : [];
      });
  }

  /** Lines of one kind, by their detail. */
  said(what: string): string[] {
    return this.lines()
      .filter((line) => line.what === what)
      .map(({ detail }) => detail);
  }

  async stop(...more: NodeJS.Signals[]): Promise<HostEnd> {
    const begun = performance.now();
    const ended = this.child.end('SIGTERM');
    for (const signal of more) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      this.child.process.kill(signal);
    }
    const { code, signal } = await ended;
    return { code, signal, ms: performance.now() - begun };
  }

  /** For the end of a test: nothing is left running, whatever happened. */
  async kill(): Promise<void> {
    await this.child.end('SIGKILL');
  }
}
