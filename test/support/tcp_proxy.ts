/** A TCP proxy that can be told what network to be: `pass`, `refuse` (nobody there), `hole` (accepts, and never answers). */
import net from 'node:net';

export type Network = 'pass' | 'refuse' | 'hole';

export class TcpProxy {
  private readonly server = net.createServer((client) => this.join(client));
  private readonly sockets = new Set<net.Socket>();
  private network: Network = 'pass';
  private trap: { bytes: Buffer; then: Network; sprung: () => void } | undefined;
  /** Connections taken so far. */
  taken = 0;

  private constructor(private readonly target?: number) {}

  /** Without a target it can only be a hole. */
  static async open(target?: number, network: Network = target === undefined ? 'hole' : 'pass'): Promise<TcpProxy> {
    const proxy = new TcpProxy(target);
    proxy.network = network;
    await new Promise<void>((resolve) => proxy.server.listen(0, '127.0.0.1', resolve));
    return proxy;
  }

  get port(): number {
    return (this.server.address() as net.AddressInfo).port;
  }

  /** `refuse` also ends what is connected; in a `hole` open connections fall silent. */
  become(network: Network): void {
    this.network = network;
    if (network === 'refuse') for (const socket of this.sockets) socket.destroy();
  }

  /** Becomes `network` when a client sends these bytes, which are lost. Resolves then. */
  becomeAt(bytes: string, network: Network): Promise<void> {
    return new Promise((sprung) => (this.trap = { bytes: Buffer.from(bytes), then: network, sprung }));
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  private join(client: net.Socket): void {
    this.taken++;
    this.keep(client);
    if (this.network === 'refuse') return void client.destroy();
    if (this.target === undefined) return void client.resume();
    const server = net.connect(this.target, '127.0.0.1');
    this.keep(server);
    client.on('close', () => server.destroy());
    server.on('close', () => client.destroy());
    client.on('data', (chunk) => {
      if (this.trap && chunk.includes(this.trap.bytes)) {
        const { then, sprung } = this.trap;
        this.trap = undefined;
        this.become(then);
        sprung();
      }
      if (this.network === 'pass') server.write(chunk);
    });
    server.on('data', (chunk) => void (this.network === 'pass' && client.write(chunk)));
  }

  private keep(socket: net.Socket): void {
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
  }
}
