/** Child processes of tests: started, listened to, ended by pid. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

const CHECKOUT = fileURLToPath(new URL('../..', import.meta.url));

export interface Child {
  readonly process: ChildProcess;
  /** Everything it wrote so far, both streams. */
  output(): string;
  /** Resolves when a line of its output holds this text; rejects when it ends before. */
  said(text: string): Promise<void>;
  /** Sends the signal and resolves with how it ended. */
  end(signal?: NodeJS.Signals): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** Runs a TypeScript file of the project as a process. */
export function startChild(path: string, env: Record<string, string>): Child {
  const child = spawn(process.execPath, ['--import', 'tsx', path], {
    cwd: CHECKOUT,
    env: { ...process.env, NODE_OPTIONS: '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  const listeners = new Set<() => void>();
  const take = (chunk: Buffer): void => {
    output += chunk.toString();
    for (const listener of listeners) listener();
  };
  child.stdout.on('data', take);
  child.stderr.on('data', take);
  const ended = once(child, 'close') as Promise<[number | null, NodeJS.Signals | null]>;
  return {
    process: child,
    output: () => output,
    said: (text) =>
      new Promise((resolve, reject) => {
        const look = (): void => {
          if (!output.includes(text)) return;
          listeners.delete(look);
          resolve();
        };
        listeners.add(look);
        void ended.then(() => reject(new Error(`ended before it said ${JSON.stringify(text)}:\n${output}`)));
        look();
      }),
    end: async (signal = 'SIGTERM') => {
      if (child.exitCode === null && child.signalCode === null) child.kill(signal);
      const [code, by] = await ended;
      return { code, signal: by };
    },
  };
}
