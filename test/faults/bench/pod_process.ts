/** A pod of the bench as its parent sees it: started, stopped, frozen, killed; what it was told, and how it ended. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { CrashPoint } from '../../../src/common/ports/crash_points.js';
import { machineMs } from './ledger.js';
import type { MongoProxy } from './mongo_proxy.js';
import { podProgram } from './pod_build.js';
import type { FromPod, PodSettings, ToPod } from './pod_settings.js';

const CHECKOUT = fileURLToPath(new URL('../../..', import.meta.url));
const KEPT_OUTPUT = 64 * 1024;
/** Also on a machine that is busy with many of them. */
const BOOT_MS = 90_000;

export interface PodEnd {
  readonly at: number;
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** Every method, so that the call's type follows the message. */
type Calls = Extract<ToPod, { call: number }>;
type WithoutCall<T> = T extends unknown ? Omit<T, 'call'> : never;

export class PodProcess {
  /** It is going to die, and may. */
  doomed = false;
  /** It said that it runs. */
  isUp = false;
  stopping = false;
  end: PodEnd | undefined;
  output = '';
  readonly ended: Promise<PodEnd>;
  private readonly child: ChildProcess;
  private readonly began = machineMs();
  /** What it took the last pod to be up. */
  static bootMs = 2_500;
  /** Its process: part of the name under which it owns partitions. */
  get pid(): string {
    return String(this.child.pid);
  }

  private readonly calls = new Map<number, (answer: string | undefined) => void>();
  private readonly up: Promise<boolean>;
  private nextCall = 0;

  constructor(
    readonly settings: PodSettings,
    readonly proxy: MongoProxy,
    readonly crash?: { point: CrashPoint; nth: number },
  ) {
    this.doomed = crash !== undefined;
    this.child = spawn(process.execPath, [podProgram(), JSON.stringify(settings)], {
      cwd: CHECKOUT,
      env: {
        ...process.env,
        NODE_OPTIONS: '',
        NODE_ENV: 'production', // the Kafka client has other defaults in tests
        QUEUE_REDIS_URL: '',
        SIDELANE_CRASH_POINT: crash ? `${crash.point}:${crash.nth}` : '',
      },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    for (const stream of [this.child.stdout!, this.child.stderr!]) {
      stream.on('data', (chunk: Buffer) => (this.output = (this.output + chunk.toString()).slice(-KEPT_OUTPUT)));
    }
    this.ended = this.waitForEnd();
    const late = sleep(BOOT_MS, false, { ref: false });
    this.up = Promise.race([this.readiness(), this.ended.then(() => false), late]);
    this.child.on('message', (message: FromPod) => {
      if (message.is === 'done') this.calls.get(message.call)?.(message.error);
    });
  }

  get name(): string {
    return this.settings.name;
  }

  get alive(): boolean {
    return this.end === undefined;
  }

  /** True once it runs; false when it ended before, or hangs. */
  ready(): Promise<boolean> {
    return this.up;
  }

  tell(message: ToPod): void {
    if (this.alive && this.child.connected) this.child.send(message, () => undefined);
  }

  /** Answers with the error's text, if any; a pod that ends meanwhile answers so. */
  async call(message: WithoutCall<Calls>): Promise<string | undefined> {
    const call = this.nextCall++;
    const answer = new Promise<string | undefined>((resolve) => this.calls.set(call, resolve));
    this.tell({ ...message, call } as Calls);
    return Promise.race([answer, this.ended.then(() => 'the pod ended')]);
  }

  kill(): void {
    this.doomed = true;
    this.child.kill('SIGKILL');
  }

  freeze(): void {
    this.child.kill('SIGSTOP');
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  terminate(): void {
    this.stopping = true;
    this.child.kill('SIGCONT');
    this.child.kill('SIGTERM');
  }

  /** Whatever happens, nothing of it is left behind. */
  async dispose(): Promise<void> {
    if (this.alive) this.kill();
    await this.ended;
    await this.proxy.close();
  }

  private readiness(): Promise<boolean> {
    return new Promise((resolve) => {
      this.child.on('message', (message: FromPod) => {
        if (message.is !== 'ready') return;
        this.isUp = true;
        PodProcess.bootMs = machineMs() - this.began;
        resolve(true);
      });
    });
  }

  private async waitForEnd(): Promise<PodEnd> {
    const [code, signal] = (await once(this.child, 'exit')) as [number | null, NodeJS.Signals | null];
    this.end = { at: machineMs(), code, signal };
    return this.end;
  }
}
