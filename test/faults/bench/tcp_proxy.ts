/**
 * A proxy in front of a server whose protocol does not matter. `pass`; `delay`: everything arrives later, in order;
 * `hole`: connections stay open and nothing that was sent arrives, ever; `reset`: nobody is there, and who was connected
 * is cut off. In all of them one reply can be lost: what was asked is carried out, and who asked is cut off untold.
 */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from './ledger.js';

export type Network = 'pass' | 'delay' | 'hole' | 'reset';

/** Of what a client sent: a text that only its reply brings, if its reply is to be lost. */
export type ReplyTrap = (sent: Buffer) => string | undefined;

/** Of one connection: the text by which its reply that is to be lost is known. */
interface Doom {
  text?: string | undefined;
}

type Passing = 'passes' | 'swallowed';

export class TcpProxy {
  private readonly server = net.createServer((client) => this.join(client));
  private readonly sockets = new Set<net.Socket>();
  private network: Network = 'pass';
  private trap: ReplyTrap | undefined;
  /** How much later, in ms. */
  delayMs = 0;
  /** By which text each lost reply was known, oldest first. */
  readonly lost: string[] = [];

  private constructor(
    private readonly target: number,
    private readonly onData: (chunk: Buffer) => void,
  ) {}

  /** `onData` sees what clients sent, as far as it is passed on. */
  static async open(target: number, onData: (chunk: Buffer) => void = () => undefined): Promise<TcpProxy> {
    const proxy = new TcpProxy(target, onData);
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.server.address() as net.AddressInfo).port;
  }

  become(network: Network): void {
    const before = this.network;
    this.network = network;
    // What a hole swallowed is missing in the middle of a stream: nobody could go on reading it.
    if (network === 'reset' || (before === 'hole' && network !== 'hole')) this.cut();
  }

  /**
   * The next reply that the trap speaks of is lost: its chunk is swallowed, and its connection reset. A protocol that is
   * not known here may answer something older first, so a reply is known by what it holds, not by when it comes.
   */
  loseReply(trap: ReplyTrap): void {
    this.trap = trap;
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private cut(): void {
    for (const socket of this.sockets) socket.resetAndDestroy();
  }

  private join(client: net.Socket): void {
    client.on('error', () => undefined);
    if (this.network === 'reset') return void client.resetAndDestroy();
    const server = net.connect(this.target, '127.0.0.1');
    const doom: Doom = {};
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.sockets.add(socket);
      socket.setNoDelay(true);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.sockets.delete(socket);
        other.destroy();
      });
      if (socket === client) this.carry(client, server, (chunk) => this.asks(chunk, doom));
      else this.carry(server, client, (chunk) => this.loses(chunk, doom, client));
    }
  }

  private asks(chunk: Buffer, doom: Doom): Passing {
    this.onData(chunk);
    if (doom.text === undefined && this.trap) {
      doom.text = this.trap(chunk);
      if (doom.text !== undefined) this.trap = undefined;
    }
    return 'passes';
  }

  private loses(chunk: Buffer, { text }: Doom, client: net.Socket): Passing {
    if (text === undefined || !chunk.includes(text)) return 'passes';
    this.lost.push(text);
    client.resetAndDestroy();
    return 'swallowed';
  }

  /** `look`: at what is about to be passed on. */
  private carry(from: net.Socket, to: net.Socket, look: (chunk: Buffer) => Passing): void {
    let line = Promise.resolve(); // what comes after a delay has ended must not overtake what was held up in it
    const write = async (chunk: Buffer, due: number): Promise<void> => {
      const wait = due - machineMs();
      if (wait > 0) await sleep(wait);
      if (this.network === 'hole' || to.destroyed) return;
      if (look(chunk) === 'passes') to.write(chunk);
    };
    from.on('data', (chunk: Buffer) => {
      if (this.network === 'hole') return;
      const due = machineMs() + (this.network === 'delay' ? this.delayMs : 0);
      line = line.then(() => write(chunk, due));
    });
  }
}
