/**
 * Sees which sends have left this process and which were answered. The client tells neither: after a lost connection it
 * reports the refused reconnect, which looks like a send that never happened. Watches the sockets' writes; never changes
 * one. A doubt counts as written: that can cost a resend, not make a double.
 */
import type { ISocketFactory } from 'kafkajs';
import { connect, type Socket } from 'node:net';
import type { KafkaPhase } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';

const PRODUCE = 0;
const API_KEY_AT = 4;
const CORRELATION_AT = 8;
const HEADER_BYTES = 12;
const KEEP_ALIVE_MS = 60_000;

export interface WatchedSend {
  phase: KafkaPhase;
  /** Bytes that a request with this send's first record contains: records are not compressed. */
  readonly marks: readonly Buffer[];
  readonly open: Set<string>;
}

export class ProduceWatch {
  private readonly sends = new Set<WatchedSend>();
  private readonly sockets = new Set<Socket>();

  begin(record: KafkaRecord): WatchedSend {
    const marks = [record.headers['event_id'] ?? '', record.value].map((text) => Buffer.from(text));
    const send: WatchedSend = { phase: 'send', marks, open: new Set() };
    this.sends.add(send);
    return send;
  }

  end(send: WatchedSend): void {
    this.sends.delete(send);
  }

  /** A broker answered a produce request. */
  answered(broker: string, correlationId: number): void {
    for (const send of this.sends) {
      if (send.open.delete(`${broker}#${correlationId}`) && send.open.size === 0) send.phase = 'answered';
    }
  }

  destroySockets(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  readonly socketFactory: ISocketFactory = ({ host, port, onConnect }) => {
    const socket = connect({ host, port }, onConnect);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
    socket.write = ((...args: unknown[]) => {
      if (Buffer.isBuffer(args[0])) this.written(`${host}:${port}`, args[0]);
      return write(...args);
    }) as Socket['write'];
    return socket;
  };

  private written(broker: string, request: Buffer): void {
    if (request.length < HEADER_BYTES || request.readInt16BE(API_KEY_AT) !== PRODUCE) return;
    for (const send of this.sends) {
      if (!send.marks.every((mark) => request.includes(mark))) continue;
      send.open.add(`${broker}#${request.readInt32BE(CORRELATION_AT)}`);
      send.phase = 'written';
    }
  }
}
