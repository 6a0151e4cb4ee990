/**
 * Sees which sends have left this process and what was answered. The client tells neither: after a lost connection it
 * reports the refused reconnect, which looks like a send that never happened, and after an answered error it asks for
 * metadata and reports what went wrong with that. Watches the sockets; never changes a byte. A doubt counts as written:
 * that can cost a resend, not make a double.
 */
import type { ISocketFactory } from 'kafkajs';
import { connect, type Socket } from 'node:net';
import { AnswerFrames, correlationOf, onlyErrorCode } from './answer_frames.js';
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
  /** What was answered, by the brokers' error codes; `undefined` for an answer that speaks of several partitions. */
  readonly codes: Set<number | undefined>;
}

export class ProduceWatch {
  private readonly sends = new Set<WatchedSend>();
  private readonly sockets = new Set<Socket>();
  private opened = 0;
  private closed = false;

  begin(record: KafkaRecord): WatchedSend {
    const marks = [record.headers['event_id'] ?? '', record.value].map((text) => Buffer.from(text));
    const send: WatchedSend = { phase: 'send', marks, open: new Set(), codes: new Set() };
    this.sends.add(send);
    return send;
  }

  end(send: WatchedSend): void {
    this.sends.delete(send);
  }

  /** The error code that the broker answered; none without an answer that speaks of this send alone. */
  codeOf({ phase, codes }: WatchedSend): number | undefined {
    // Answers that differ belong to records that are alike: which of them is this send's own cannot be told.
    return phase === 'answered' && codes.size === 1 ? [...codes][0] : undefined;
  }

  /** Ends every socket. With an error the client learns of it at once, and of its requests. */
  destroySockets(error?: Error): void {
    for (const socket of this.sockets) socket.destroy(error);
  }

  /** No new sockets from here on: a question that outlived its deadline would connect a client that nobody closes. */
  close(): void {
    this.closed = true;
  }

  readonly socketFactory: ISocketFactory = ({ host, port, onConnect }) => {
    if (this.closed) throw new Error('the connection is closed');
    const socket = connect({ host, port }, onConnect);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    this.sockets.add(socket);
    socket.once('close', () => this.sockets.delete(socket));
    const id = this.opened++;
    const write = socket.write.bind(socket) as (...args: unknown[]) => boolean;
    socket.write = ((...args: unknown[]) => {
      if (Buffer.isBuffer(args[0])) this.written(id, args[0]);
      return write(...args);
    }) as Socket['write'];
    const frames = new AnswerFrames();
    // Before the client reads it: what the client does with an answer may take the send to its end.
    socket.on('data', (chunk: Buffer) => {
      for (const frame of frames.push(chunk)) this.answered(id, frame);
    });
    return socket;
  };

  private written(socket: number, request: Buffer): void {
    if (request.length < HEADER_BYTES || request.readInt16BE(API_KEY_AT) !== PRODUCE) return;
    for (const send of this.sends) {
      if (!send.marks.every((mark) => request.includes(mark))) continue;
      send.open.add(`${socket}#${request.readInt32BE(CORRELATION_AT)}`);
      send.phase = 'written';
    }
  }

  private answered(socket: number, frame: Buffer): void {
    const request = `${socket}#${correlationOf(frame)}`;
    for (const send of this.sends) {
      if (!send.open.delete(request)) continue;
      send.codes.add(onlyErrorCode(frame));
      if (send.open.size === 0) send.phase = 'answered';
    }
  }
}
