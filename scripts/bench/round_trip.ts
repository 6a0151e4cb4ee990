// Emulated round trips: while it is on, every new connection of this process to one of the given ports holds what it
// writes for so many milliseconds, in order. Connections that existed before are left alone.
import net from 'node:net';
import { syncBuiltinESMExports } from 'node:module';

type Connect = typeof net.connect;

/** `delays`: port to milliseconds. */
export async function delaying<T>(delays: ReadonlyMap<number, number>, work: () => Promise<T>): Promise<T> {
  const { connect, createConnection } = net;
  const slow = ((...args: Parameters<Connect>) => {
    const socket = connect(...args);
    const ms = delays.get(portOf(args));
    return ms === undefined ? socket : held(socket, ms);
  }) as Connect;
  const patch = (one: Connect, other: Connect): void => {
    net.connect = one;
    net.createConnection = other;
    syncBuiltinESMExports(); // `import { connect } from 'node:net'` sees it, too
  };
  patch(slow, slow);
  try {
    return await work();
  } finally {
    patch(connect, createConnection);
  }
}

function portOf([first]: unknown[]): number {
  if (typeof first === 'number') return first;
  return Number((first as { port?: number | string } | undefined)?.port);
}

function held(socket: net.Socket, ms: number): net.Socket {
  const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
  socket.write = ((...args: unknown[]) => {
    setTimeout(() => void (socket.destroyed || write(...args)), ms);
    return true;
  }) as net.Socket['write'];
  return socket;
}
