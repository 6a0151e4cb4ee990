/**
 * A proxy in front of the database that knows where a message of its protocol begins and ends, so that it can lose the
 * reply of one command: the command is carried out, the answer is swallowed, the connection is reset. One per pod.
 *
 * It can also move the server's clock: whoever asks for the time through it is told another one.
 *
 * `pass`; `refuse`: resets what is open and takes nothing new; `stall`: everything waits and arrives late, as after a
 * cable that was pulled for a while; `hole`: what is sent is lost, and the connections are reset when it ends.
 */
import { BSON } from 'bson';
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export type MongoNetwork = 'pass' | 'refuse' | 'stall' | 'hole';

export interface Command {
  readonly name: string;
  /** What the command works on; empty for commands without a collection. */
  readonly collection: string;
  /** Whether the message holds this text anywhere, in field names for example. */
  holds(text: string): boolean;
}

export interface Trap {
  readonly name: string;
  matches(command: Command): boolean;
}

const HEADER = 16;
const OP_MSG = 2013;
/** A date of that name in an answer: what the engine takes the time from. */
const LOCAL_TIME = Buffer.from('\tlocalTime\0');

export class MongoProxy {
  private readonly server = net.createServer((client) => this.join(client));
  private readonly pairs = new Set<Pair>();
  private readonly traps: { trap: Trap; left: number }[] = [];
  private network: MongoNetwork = 'pass';
  private gate: Promise<void> = Promise.resolve();
  private openGate = (): void => undefined;
  /** Asked for every message, in ms. */
  delayMs: () => number = () => 0;
  /** The server's clock is so far ahead. */
  clockMs = 0;
  /** Replies lost so far, by trap. */
  readonly lost: string[] = [];

  private constructor(private readonly target: number) {}

  static async open(target: number): Promise<MongoProxy> {
    const proxy = new MongoProxy(target);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get uri(): string {
    return `mongodb://127.0.0.1:${(this.server.address() as net.AddressInfo).port}/?directConnection=true`;
  }

  become(network: MongoNetwork): void {
    const before = this.network;
    this.network = network;
    if (network === 'stall') this.gate = new Promise((resolve) => (this.openGate = resolve));
    else this.openGate();
    if (network === 'refuse' || (before === 'hole' && network !== 'hole')) this.reset();
  }

  /** Ends every open connection. */
  reset(): void {
    for (const pair of this.pairs) pair.end();
  }

  /** The next `times` replies of commands that match are lost. */
  loseReplies(trap: Trap, times = 1): void {
    this.traps.push({ trap, left: times });
  }

  /** Forgets traps that nothing stepped into. */
  clearTraps(): void {
    this.traps.splice(0);
  }

  async close(): Promise<void> {
    this.openGate();
    this.reset();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private join(client: net.Socket): void {
    if (this.network === 'refuse') {
      client.on('error', () => undefined);
      return void client.destroy();
    }
    const pair = new Pair(client, net.connect(this.target, '127.0.0.1'), {
      held: () => this.held(),
      trapped: (message) => this.trapped(message),
      lost: (name) => void this.lost.push(name),
      answer: (message) => moveClock(message, this.clockMs),
      closed: () => void this.pairs.delete(pair),
    });
    this.pairs.add(pair);
  }

  /** Resolves when a message may go on; false when it is lost. */
  private async held(): Promise<boolean> {
    if (this.swallows()) return false;
    const ms = this.delayMs();
    if (ms > 0) await sleep(ms);
    await this.gate;
    return !this.swallows();
  }

  private swallows(): boolean {
    return this.network === 'hole';
  }

  private trapped(message: Buffer): string | undefined {
    if (this.traps.length === 0) return undefined;
    const command = parseCommand(message);
    const found = command && this.traps.find(({ trap, left }) => left > 0 && trap.matches(command));
    if (!found) return undefined;
    found.left--;
    return found.trap.name;
  }
}

interface PairRules {
  held(): Promise<boolean>;
  trapped(message: Buffer): string | undefined;
  lost(trap: string): void;
  /** An answer on its way to the pod; may be changed. */
  answer(message: Buffer): void;
  closed(): void;
}

/** One connection of the pod and the one behind it. */
class Pair {
  private readonly doomed = new Map<number, string>();

  constructor(
    private readonly client: net.Socket,
    private readonly server: net.Socket,
    private readonly rules: PairRules,
  ) {
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.on('close', () => this.end());
    }
    this.carry(client, server, (message) => {
      const trap = rules.trapped(message);
      if (trap !== undefined) this.doomed.set(message.readInt32LE(4), trap);
      return true;
    });
    this.carry(server, client, (message) => {
      const trap = this.doomed.get(message.readInt32LE(8));
      rules.answer(message);
      if (trap === undefined) return true;
      rules.lost(trap);
      this.end();
      return false;
    });
  }

  end(): void {
    this.client.resetAndDestroy();
    this.server.destroy();
    this.rules.closed();
  }

  private carry(from: net.Socket, to: net.Socket, look: (message: Buffer) => boolean): void {
    let rest: Buffer = Buffer.alloc(0);
    let line = Promise.resolve();
    const send = async (message: Buffer): Promise<void> => {
      if (!(await this.rules.held())) return;
      if (!to.destroyed) to.write(message);
    };
    from.on('data', (chunk: Buffer) => {
      rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      for (let size = sizeOf(rest); size !== undefined; size = sizeOf(rest)) {
        const message = rest.subarray(0, size);
        rest = rest.subarray(size);
        if (look(message)) line = line.then(() => send(message));
      }
    });
  }
}

function moveClock(message: Buffer, ms: number): void {
  const at = ms === 0 ? -1 : message.indexOf(LOCAL_TIME);
  if (at < 0) return;
  const value = at + LOCAL_TIME.length;
  message.writeBigInt64LE(message.readBigInt64LE(value) + BigInt(ms), value);
}

function sizeOf(buffer: Buffer): number | undefined {
  if (buffer.length < HEADER) return undefined;
  const size = buffer.readInt32LE(0);
  return buffer.length >= size ? size : undefined;
}

/** The command of a request; nothing for messages of another kind. */
export function parseCommand(message: Buffer): Command | undefined {
  if (message.readInt32LE(12) !== OP_MSG) return undefined;
  for (let at = HEADER + 4; at < message.length;) {
    const kind = message[at++];
    const size = message.readInt32LE(at);
    if (kind === 0) {
      const [first] = Object.entries(BSON.deserialize(message.subarray(at, at + size)));
      const [name, value] = first as [string, unknown];
      const collection = typeof value === 'string' ? value : '';
      return { name, collection, holds: (text) => message.includes(text) };
    }
    at += size;
  }
  return undefined;
}
