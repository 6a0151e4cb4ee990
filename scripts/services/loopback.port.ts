// Ports of the loopback interface: finds free ones and asks whether one answers. Never listens anywhere else.
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

export const LOOPBACK = '127.0.0.1';
const ANSWER_MS = 500;

function tryListen(port: number): Promise<number | undefined> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(undefined));
    server.listen({ port, host: LOOPBACK, exclusive: true }, () => {
      const { port: taken } = server.address() as AddressInfo;
      server.close(() => resolve(taken));
    });
  });
}

/** The preferred port when nobody answers on it and it can be bound, else any free one. */
export async function freePort(preferred = 0): Promise<number> {
  const wanted = preferred !== 0 && !(await answers(preferred)) ? await tryListen(preferred) : undefined;
  const port = wanted ?? (await tryListen(0));
  if (port === undefined) throw new Error('no free port on the loopback interface');
  return port;
}

export function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ port, host: LOOPBACK });
    const settle = (open: boolean): void => {
      socket.destroy();
      resolve(open);
    };
    socket.setTimeout(ANSWER_MS, () => settle(false));
    socket.once('connect', () => settle(true));
    socket.once('error', () => settle(false));
  });
}

/** The loopback port inside an address such as `mongodb://127.0.0.1:27017/`. */
export function portOf(address: string): number {
  const port = /127\.0\.0\.1:(\d+)/.exec(address)?.[1];
  if (port === undefined) throw new Error(`no loopback port in ${address}`);
  return Number(port);
}
