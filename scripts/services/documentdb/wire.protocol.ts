// Promises: bytes of MongoDB's wire protocol become requests, replies become bytes, in time linear in their number,
// however the network cut them. Must never know what a command means.
// Spoken: OP_MSG, and OP_QUERY for the handshake of drivers that do not know yet whom they talk to. Not OP_COMPRESSED:
// the handshake offers no compressor.
const OP_REPLY = 1;
const OP_QUERY = 2004;
const OP_MSG = 2013;
const HEADER = 16;
const MAX_MESSAGE = 48_000_000;
const CHECKSUM_PRESENT = 1;
const MORE_TO_COME = 2;
/** Bits above these 16 may be ignored by a server that does not know them (exhaustAllowed is one of them). */
const REQUIRED_BITS = 0xffff;

export class ProtocolError extends Error {}

export interface Request {
  requestId: number;
  /** The command, as one BSON document. */
  body: Buffer;
  /** The command's document sequence (documents, updates or deletes), laid end to end. */
  sequence?: Buffer;
  replyWanted: boolean;
  legacy: boolean;
}

/** Cuts a stream of chunks into messages. */
export class MessageReader {
  #chunks: Buffer[] = [];
  #length = 0;
  #wanted = 4;

  push(chunk: Buffer): Buffer[] {
    this.#chunks.push(chunk);
    this.#length += chunk.length;
    const messages: Buffer[] = [];
    while (this.#length >= this.#wanted) {
      const buffered = this.#chunks.length === 1 ? this.#chunks[0]! : Buffer.concat(this.#chunks, this.#length);
      const size = buffered.readInt32LE(0);
      if (size < HEADER || size > MAX_MESSAGE) throw new ProtocolError(`a message of ${size} bytes`);
      if (buffered.length < size) {
        this.#chunks = [buffered];
        this.#wanted = size;
        break;
      }
      messages.push(buffered.subarray(0, size));
      this.#chunks = buffered.length > size ? [buffered.subarray(size)] : [];
      this.#length -= size;
      this.#wanted = 4;
    }
    return messages;
  }
}

export function parseRequest(message: Buffer): Request {
  const requestId = message.readInt32LE(4);
  const opcode = message.readInt32LE(12);
  if (opcode === OP_MSG) return parseMsg(message, requestId);
  if (opcode === OP_QUERY) return parseQuery(message, requestId);
  throw new ProtocolError(`opcode ${opcode}`);
}

function parseMsg(message: Buffer, requestId: number): Request {
  const flags = message.readUInt32LE(HEADER);
  if (flags & REQUIRED_BITS & ~(CHECKSUM_PRESENT | MORE_TO_COME)) throw new ProtocolError(`flags ${flags}`);
  const end = flags & CHECKSUM_PRESENT ? message.length - 4 : message.length;
  let body: Buffer | undefined;
  let sequence: Buffer | undefined;
  for (let at = HEADER + 4; at < end;) {
    const kind = message[at];
    const section = message.subarray(at + 1, at + 1 + message.readInt32LE(at + 1));
    if (kind === 0) body = section;
    else if (kind === 1) sequence = section.subarray(section.indexOf(0, 4) + 1);
    else throw new ProtocolError(`section kind ${kind}`);
    at += 1 + section.length;
  }
  if (!body) throw new ProtocolError('a message without a command');
  return { requestId, body, sequence, replyWanted: !(flags & MORE_TO_COME), legacy: false };
}

function parseQuery(message: Buffer, requestId: number): Request {
  const afterName = message.indexOf(0, HEADER + 4) + 1;
  const at = afterName + 8;
  const body = message.subarray(at, at + message.readInt32LE(at));
  return { requestId, body, replyWanted: true, legacy: true };
}

let replies = 0;

/** The bytes before the reply's document. */
export function replyHeader(request: Request, size: number): Buffer {
  const prefix = request.legacy ? HEADER + 20 : HEADER + 5;
  const header = Buffer.alloc(prefix);
  header.writeInt32LE(prefix + size, 0);
  header.writeInt32LE((replies = (replies + 1) & 0x7fffffff), 4);
  header.writeInt32LE(request.requestId, 8);
  header.writeInt32LE(request.legacy ? OP_REPLY : OP_MSG, 12);
  if (request.legacy) {
    header.writeInt32LE(8, 16); // awaitCapable
    header.writeInt32LE(1, 32); // one document
  }
  return header;
}
