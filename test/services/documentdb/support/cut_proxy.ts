// A TCP proxy that can lose the server's answer: it forwards the next request of a command, and cuts the connection when
// the answer comes, as a broken network would.
import net from 'node:net';

export class CutProxy {
  readonly #server = net.createServer((client) => this.#join(client));
  readonly #sockets = new Set<net.Socket>();
  #losing?: Buffer;
  lost = 0;

  constructor(private readonly target: number) {}

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return (this.#server.address() as net.AddressInfo).port;
  }

  /** The next command of that name is carried out, and its answer lost. */
  loseAnswerTo(command: string): void {
    this.#losing = Buffer.from(`${command}\0`);
  }

  /** Every connection ends at once, as when the client's process is killed. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #join(client: net.Socket): void {
    const server = net.connect(this.target, '127.0.0.1');
    let cutting = false;
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        this.#sockets.delete(socket);
        client.destroy();
        server.destroy();
      });
    }
    client.on('data', (chunk) => {
      if (this.#losing && chunk.includes(this.#losing)) {
        cutting = true;
        this.#losing = undefined;
      }
      server.write(chunk);
    });
    server.on('data', (chunk) => {
      if (!cutting) return void client.write(chunk);
      this.lost += 1;
      client.destroy();
    });
  }
}
