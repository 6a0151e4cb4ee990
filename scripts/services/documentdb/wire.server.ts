// Promises: each socket's commands are answered in the order they came, on loopback only, and what a socket held is
// released when it closes. Must never answer a client that has gone, nor keep a closed server's sockets open.
import net from 'node:net';
import { answer } from './dispatcher.js';
import { ClientConnection } from './client.connection.js';
import type { Services } from './command.scope.js';
import { MessageReader, parseRequest, replyHeader } from './wire.protocol.js';

const HOST = '127.0.0.1';

export class WireServer {
  readonly #server = net.createServer((socket) => this.#accept(socket));
  readonly #sockets = new Set<net.Socket>();
  #accepted = 0;

  constructor(private readonly services: Services) {}

  async listen(port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, HOST, resolve);
    });
    return (this.#server.address() as net.AddressInfo).port;
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #accept(socket: net.Socket): void {
    const connection = new ClientConnection(++this.#accepted);
    const reader = new MessageReader();
    let turn: Promise<void> = Promise.resolve();
    socket.setNoDelay(true);
    this.#sockets.add(socket);
    socket.on('data', (chunk) => {
      try {
        for (const message of reader.push(chunk)) {
          turn = turn.then(() => this.#serve(socket, connection, message)).catch(() => void socket.destroy());
        }
      } catch {
        socket.destroy(); // not MongoDB's protocol
      }
    });
    socket.on('error', () => {}); // 'close' follows
    socket.on('close', () => {
      this.#sockets.delete(socket);
      connection.lost();
    });
  }

  async #serve(socket: net.Socket, connection: ClientConnection, message: Buffer): Promise<void> {
    if (!connection.open) return;
    const request = parseRequest(message);
    const reply = await answer(this.services, connection, request);
    if (!request.replyWanted || !connection.open) return;
    socket.cork();
    socket.write(replyHeader(request, reply.length));
    socket.write(reply);
    socket.uncork();
  }
}
