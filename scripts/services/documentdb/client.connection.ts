// Promises: what a client's socket holds (a transaction, a cursor, a running statement) learns that the socket has gone.
// Must never release anything itself: drivers spread one transaction over several sockets of their pool, so only the holder
// knows whether others still use it.
import type { Lease } from './postgres.pool.js';

export interface Held {
  connectionLost(connection: ClientConnection): void;
}

export class ClientConnection {
  readonly #held = new Set<Held>();
  #running?: Lease;
  #open = true;

  constructor(readonly id: number) {}

  get open(): boolean {
    return this.#open;
  }

  hold(what: Held): void {
    if (this.#open) this.#held.add(what);
    else queueMicrotask(() => what.connectionLost(this)); // it went away while the command was on its way
  }

  letGo(what: Held): void {
    this.#held.delete(what);
  }

  /** Runs a statement that is stopped when the client goes away, as nobody would learn its result. */
  async watch<T>(lease: Lease, work: () => Promise<T>): Promise<T> {
    this.#running = lease;
    try {
      return await work();
    } finally {
      this.#running = undefined;
    }
  }

  lost(): void {
    this.#open = false;
    this.#running?.cancel();
    for (const what of this.#held) what.connectionLost(this);
    this.#held.clear();
  }
}

/** The sockets that have used something; `onLast` is called when the last of them has gone. */
export class Users implements Held {
  readonly #connections = new Set<ClientConnection>();

  constructor(private readonly onLast: () => void) {}

  add(connection: ClientConnection): void {
    if (this.#connections.has(connection)) return;
    this.#connections.add(connection);
    connection.hold(this);
  }

  connectionLost(connection: ClientConnection): void {
    this.#connections.delete(connection);
    if (this.#connections.size === 0) this.onLast();
  }

  clear(): void {
    for (const connection of this.#connections) connection.letGo(this);
    this.#connections.clear();
  }
}
