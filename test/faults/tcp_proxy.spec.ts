import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import net from 'node:net';
import { machineMs } from './bench/ledger.js';
import { TcpProxy } from './bench/tcp_proxy.js';

/** However it ends. */
const closeOf = (socket: net.Socket): Promise<unknown> => new Promise((resolve) => socket.once('close', resolve));

describe('the proxy in front of a server', () => {
  let echo: net.Server;
  let proxy: TcpProxy;
  let client: net.Socket;
  let seen = '';

  beforeEach(async () => {
    echo = net.createServer((socket) => socket.on('error', () => undefined).pipe(socket)).listen(0, '127.0.0.1');
    await once(echo, 'listening');
    proxy = await TcpProxy.open((echo.address() as net.AddressInfo).port, (chunk) => void (seen += chunk.toString()));
    client = net.connect(proxy.port, '127.0.0.1').on('error', () => undefined);
    client.write('?');
    await answer(1); // the proxy knows it now
    seen = '';
  });
  afterEach(async () => {
    client.destroy();
    await proxy.close();
    echo.close();
  });

  /** Long enough for what a proxy does not hold up: it would have arrived, and been answered, many times. */
  async function roundTrips(): Promise<void> {
    const direct = net.connect((echo.address() as net.AddressInfo).port, '127.0.0.1');
    for (let n = 0; n < 20; n++) {
      direct.write('.');
      await once(direct, 'data');
    }
    direct.destroy();
  }

  /** What comes back, until it is as long as what was sent. */
  async function answer(length: number): Promise<string> {
    let text = '';
    while (text.length < length) text += ((await once(client, 'data')) as [Buffer])[0].toString();
    return text;
  }

  it('passes on, and shows what clients send', async () => {
    client.write('a');
    expect(await answer(1)).toBe('a');
    expect(seen).toBe('a');
  });

  it('delays both ways, and lets nothing overtake what it holds up', async () => {
    const held = new Promise<void>((resolve) => {
      const delay = { get: () => (resolve(), 100), configurable: true };
      Object.defineProperty(proxy, 'delayMs', delay);
    });
    proxy.become('delay');
    const began = machineMs();
    client.write('a');
    await held;
    proxy.become('pass');
    client.write('b');
    expect(await answer(2)).toBe('ab');
    expect(machineMs() - began).toBeGreaterThan(95);
  });

  it('swallows what is sent into a hole, and cuts its connections when it ends', async () => {
    proxy.become('hole');
    client.write('a');
    await roundTrips();
    const closed = closeOf(client);
    proxy.become('pass');
    await closed;
    expect(seen).toBe('');
  });

  it('resets who is connected, and takes nobody new', async () => {
    const closed = closeOf(client);
    proxy.become('reset');
    await closed;
    const next = net.connect(proxy.port, '127.0.0.1').on('error', () => undefined);
    next.write('a');
    await closeOf(next);
    await roundTrips();
    expect(seen).toBe('');
  });

  it('loses one reply, whose request is carried out, and resets its connection alone', async () => {
    const other = net.connect(proxy.port, '127.0.0.1');
    proxy.loseReply((sent) => (sent.includes('b') ? 'b' : undefined));
    client.write('a');
    expect(await answer(1)).toBe('a');
    let told = '';
    client.on('data', (chunk: Buffer) => void (told += chunk.toString()));
    const closed = closeOf(client);
    client.write('b');
    await closed;
    expect([seen, told, proxy.lost]).toEqual(['ab', '', ['b']]);
    other.write('b');
    expect(String(await once(other, 'data'))).toBe('b');
    other.destroy();
  });

  it('waits for the reply that it is to lose, and lets others through before', async () => {
    proxy.loseReply((sent) => (sent.includes('a') ? 'b' : undefined));
    client.write('a');
    expect(await answer(1)).toBe('a');
    const closed = closeOf(client);
    client.write('b');
    await closed;
    expect(proxy.lost).toEqual(['b']);
  });
});
