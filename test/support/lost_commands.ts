/**
 * Loses commands on their way out, as the driver loses them itself: nothing of ours or of the driver is replaced, only the
 * one socket of the one command is destroyed in the instant before it is written.
 *
 * Begin before the connection is opened: sockets that were open already are not watched. Commands of the whole process are
 * met, those of other connections too, so name what only the command in question holds.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { Socket } from 'node:net';
import { isUint8Array } from 'node:util/types';

/**
 * `silent`: the socket is destroyed without an error, and the driver's promise never settles. `reset`: it breaks in the middle
 * of the write, and the driver throws the socket's own error, `write ECONNRESET`. `hold`: the command waits for `release()`.
 */
export type Loss = 'silent' | 'reset' | 'hold';

export interface LostCommand {
  /** Resolves when the command was met. */
  readonly met: Promise<void>;
  /** Sends what was held, in this turn; it is carried out, and answered, like any other. */
  release(): void;
}

interface Trap {
  readonly text: readonly string[];
  readonly how: Loss;
  spring(send: () => void): void;
}

type Write = (...args: unknown[]) => boolean;

export class LostCommands {
  private readonly traps: Trap[] = [];
  // Not at once: `connect()`, which comes next, takes the socket's own `write` back.
  private readonly watch = (message: unknown): void => {
    const { socket } = message as { socket: Socket };
    socket.once('connect', () => this.overlay(socket));
  };

  constructor() {
    subscribe('net.client.socket', this.watch);
  }

  /** The next command of this name whose message holds all of these texts (names of collections, fields, values). */
  loseNext(command: string, how: Loss = 'silent', ...holding: string[]): LostCommand {
    let send = (): void => undefined;
    let spring!: Trap['spring'];
    const met = new Promise<void>((resolve) => {
      spring = (held) => {
        send = held;
        resolve();
      };
    });
    this.traps.push({ text: [command, ...holding], how, spring });
    return { met, release: () => send() };
  }

  /** Forgets what was not met and watches no further sockets. */
  stop(): void {
    this.traps.splice(0);
    unsubscribe('net.client.socket', this.watch);
  }

  private overlay(socket: Socket): void {
    const write = socket.write.bind(socket) as Write;
    socket.write = ((...args: unknown[]): boolean => {
      const trap = this.take(args[0]);
      if (trap?.how === 'hold') {
        trap.spring(() => void write(...args));
        return true;
      }
      if (trap) {
        socket.destroy(trap.how === 'reset' ? writeReset() : undefined);
        trap.spring(() => undefined);
      }
      return write(...args);
    }) as Socket['write'];
  }

  private take(message: unknown): Trap | undefined {
    if (this.traps.length === 0 || !isUint8Array(message)) return undefined;
    const bytes = Buffer.from(message.buffer, message.byteOffset, message.byteLength);
    const at = this.traps.findIndex(({ text: [name, ...rest] }) => {
      return nameOf(bytes) === name && rest.every((text) => bytes.includes(text));
    });
    return at < 0 ? undefined : this.traps.splice(at, 1)[0];
  }
}

/** Of a message of the protocol: header (16), flags (4), kind (1), then the length (4) and the first field's type (1). */
const NAME_AT = 26;

function nameOf(message: Buffer): string {
  return message.subarray(NAME_AT, message.indexOf(0, NAME_AT)).toString('latin1');
}

function writeReset(): Error {
  return Object.assign(new Error('write ECONNRESET'), { code: 'ECONNRESET', syscall: 'write', errno: -104 });
}
