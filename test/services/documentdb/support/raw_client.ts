// One socket that speaks OP_MSG by hand, for what no driver does: broken messages, a transaction over chosen sockets.
import net from 'node:net';
import { randomUUID } from 'node:crypto';
import mongoose from 'mongoose';

const { BSON } = mongoose.mongo;
type Document = Record<string, unknown>;

export class RawClient {
  readonly #socket: net.Socket;
  readonly closed: Promise<void>;
  #received = Buffer.alloc(0);
  #waiting: ((message: Buffer) => void)[] = [];

  private constructor(socket: net.Socket) {
    this.#socket = socket;
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => {});
    socket.on('data', (chunk) => this.#take(chunk));
  }

  static async connect(port: number): Promise<RawClient> {
    const socket = net.connect(port, '127.0.0.1');
    await new Promise<void>((resolve) => socket.once('connect', resolve));
    return new RawClient(socket);
  }

  write(bytes: Buffer): void {
    this.#socket.write(bytes);
  }

  message(): Promise<Buffer> {
    const message = new Promise<Buffer>((resolve) => this.#waiting.push(resolve));
    this.#take(Buffer.alloc(0));
    return message;
  }

  async reply(): Promise<Document> {
    return BSON.deserialize((await this.message()).subarray(21));
  }

  async command(command: Document): Promise<Document> {
    this.write(opMsg(command));
    return this.reply();
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    while (this.#waiting.length > 0 && this.#received.length >= 4) {
      const size = this.#received.readInt32LE(0);
      if (this.#received.length < size) return;
      const message = this.#received.subarray(0, size);
      this.#received = this.#received.subarray(size);
      this.#waiting.shift()!(message);
    }
  }
}

export function opMsg(command: Document, options: { flags?: number; sequence?: [string, Document[]] } = {}): Buffer {
  const { flags = 0, sequence } = options;
  const sections = [Buffer.from([0]), Buffer.from(BSON.serialize(command))];
  if (sequence) {
    const [name, documents] = sequence;
    const body = Buffer.concat([Buffer.from(`${name}\0`), ...documents.map((one) => Buffer.from(BSON.serialize(one)))]);
    const size = Buffer.alloc(4);
    size.writeInt32LE(body.length + 4);
    sections.push(Buffer.from([1]), size, body);
  }
  if (flags & 1) sections.push(Buffer.alloc(4)); // the checksum's place
  return withHeader(2013, Buffer.concat([int(flags), ...sections]));
}

export function opQuery(command: Document): Buffer {
  const name = Buffer.from('admin.$cmd\0');
  return withHeader(2004, Buffer.concat([int(0), name, int(0), int(-1), Buffer.from(BSON.serialize(command))]));
}

export function withHeader(opcode: number, payload: Buffer, size = payload.length + 16): Buffer {
  return Buffer.concat([int(size), int(77), int(0), int(opcode), payload]);
}

/** A session and its numbering, as a driver keeps them. */
export function newSession(): { lsid: Document; numbered: (number: number) => Document } {
  const lsid = { id: new BSON.UUID(randomUUID()).toBinary() };
  return { lsid, numbered: (number) => ({ lsid, txnNumber: BSON.Long.fromNumber(number) }) };
}

function int(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}
