/**
 * A proxy in front of a server whose protocol does not matter. `pass`; `delay`: everything arrives later, in order;
 * `hole`: connections stay open and nothing that was sent arrives, ever; `reset`: nobody is there, and who was connected
 * is cut off.
 */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { machineMs } from './ledger.js';

export type Network = 'pass' | 'delay' | 'hole' | 'reset';

export class TcpProxy {
  private readonly server = net.createServer((client) => this.join(client));
  private readonly sockets = new Set<net.Socket>();
  private network: Network = 'pass';
  /** How much later, in ms. */
  delayMs = 0;

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
      this.carry(socket, other, socket === client);
    }
  }

  private carry(from: net.Socket, to: net.Socket, fromClient: boolean): void {
    let line = Promise.resolve(); // what comes after a delay has ended must not overtake what was held up in it
    const write = async (chunk: Buffer, due: number): Promise<void> => {
      const wait = due - machineMs();
      if (wait > 0) await sleep(wait);
      if (this.network === 'hole' || to.destroyed) return;
      if (fromClient) this.onData(chunk);
      to.write(chunk);
    };
    from.on('data', (chunk: Buffer) => {
      if (this.network === 'hole') return;
      const due = machineMs() + (this.network === 'delay' ? this.delayMs : 0);
      line = line.then(() => write(chunk, due));
    });
  }
}
