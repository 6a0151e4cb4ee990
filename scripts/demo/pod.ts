// One pod of the sample application: a process of its own, reached through HTTP.
import { spawn, type ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

export class Pod {
  private constructor(
    private readonly child: ChildProcess,
    private readonly origin: string,
  ) {}

  /** Where customers change delivery orders. */
  get url(): string {
    return `${this.origin}/api/v1/delivery-orders`;
  }

  get metricsUrl(): string {
    return `${this.origin}/metrics`;
  }

  static async start(env: Record<string, string>): Promise<Pod> {
    const child = spawn(process.execPath, ['dist/main.js'], {
      env: { ...process.env, ...env, PORT: '0', HOST: '127.0.0.1' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => (said = (said + chunk.toString()).slice(-4_000)));
    const port = await new Promise<string>((resolve, reject) => {
      child.once('exit', (code) => reject(new Error(`a pod ended at its start with ${code}: ${said}`)));
      createInterface({ input: child.stdout }).on('line', (line) => {
        const found = /^listening (\d+)$/.exec(line);
        if (found) resolve(found[1]!);
      });
    });
    return new Pod(child, `http://127.0.0.1:${port}`);
  }

  get alive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** No goodbye: nothing is released, nothing is written. */
  kill(): void {
    this.child.kill('SIGKILL');
  }

  /** Asks it to end in order; answers how it ended: an exit code or a signal. */
  async stop(): Promise<number | string> {
    if (this.alive) {
      const ended = new Promise((resolve) => this.child.once('exit', resolve));
      this.child.kill('SIGTERM');
      await ended;
    }
    return this.child.exitCode ?? this.child.signalCode ?? 'nothing';
  }
}
