/** As much of Kafka's protocol as the stand-in speaks: ApiVersions 0-2, Metadata 1, Produce 3 with record batches. Pure. */

export const Api = { produce: 0, metadata: 3, apiVersions: 18 } as const;
export const ErrorCode = { none: 0, notLeader: 6 } as const;

export interface Request {
  api: number;
  version: number;
  correlation: number;
  body: Reader;
}

export interface Produced {
  topic: string;
  partition: number;
  values: string[];
}

/** Reads a request; a message that is cut short throws. */
export class Reader {
  constructor(
    private readonly buffer: Buffer,
    private at = 0,
  ) {}

  int8 = (): number => this.buffer.readInt8(this.skip(1));
  int16 = (): number => this.buffer.readInt16BE(this.skip(2));
  int32 = (): number => this.buffer.readInt32BE(this.skip(4));
  int64 = (): bigint => this.buffer.readBigInt64BE(this.skip(8));

  string(): string | null {
    const size = this.int16();
    return size < 0 ? null : this.bytes(size).toString();
  }

  bytes(size: number): Buffer {
    const from = this.skip(size);
    return this.buffer.subarray(from, from + size);
  }

  list<T>(each: () => T): T[] {
    return Array.from({ length: Math.max(0, this.int32()) }, each);
  }

  varint(): number {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = BigInt(this.buffer.readUInt8(this.skip(1)));
      value |= (byte & 0x7fn) << shift;
      if (byte < 0x80n) break;
    }
    return Number((value >> 1n) ^ -(value & 1n));
  }

  private skip(size: number): number {
    const from = this.at;
    this.at += size;
    return from;
  }
}

export class Writer {
  private readonly parts: Buffer[] = [];

  int8(value: number): this {
    return this.add(1, (buffer) => buffer.writeInt8(value));
  }
  int16(value: number): this {
    return this.add(2, (buffer) => buffer.writeInt16BE(value));
  }
  int32(value: number): this {
    return this.add(4, (buffer) => buffer.writeInt32BE(value));
  }
  int64(value: bigint): this {
    return this.add(8, (buffer) => buffer.writeBigInt64BE(value));
  }
  string(value: string | null): this {
    if (value === null) return this.int16(-1);
    const bytes = Buffer.from(value);
    this.int16(bytes.length);
    this.parts.push(bytes);
    return this;
  }
  list<T>(values: readonly T[], each: (value: T) => unknown): this {
    this.int32(values.length);
    values.forEach(each);
    return this;
  }
  /** With its length in front. */
  message(): Buffer {
    const body = Buffer.concat(this.parts);
    const size = Buffer.alloc(4);
    size.writeInt32BE(body.length);
    return Buffer.concat([size, body]);
  }
  private add(size: number, write: (buffer: Buffer) => unknown): this {
    const buffer = Buffer.alloc(size);
    write(buffer);
    this.parts.push(buffer);
    return this;
  }
}

export function readRequest(message: Buffer): Request {
  const body = new Reader(message);
  const request = { api: body.int16(), version: body.int16(), correlation: body.int32(), body };
  body.string(); // client id
  return request;
}

export function apiVersionsAnswer({ correlation, version }: Request): Buffer {
  const supported = [
    [Api.produce, 3, 3],
    [Api.metadata, 1, 1],
    [Api.apiVersions, 0, 2],
  ] as const;
  const answer = new Writer().int32(correlation).int16(ErrorCode.none);
  answer.list(supported, ([api, from, to]) => answer.int16(api).int16(from).int16(to));
  if (version > 0) answer.int32(0);
  return answer.message();
}

export const metadataTopics = ({ body }: Request): string[] => body.list(() => body.string() ?? '');

export function metadataAnswer(
  { correlation }: Request,
  facts: {
    brokers: readonly { id: number; port: number }[];
    topics: readonly string[];
    leaders: readonly number[];
    /** Topic to the error that is answered instead of its partitions. */
    errors?: ReadonlyMap<string, number>;
  },
): Buffer {
  const answer = new Writer().int32(correlation);
  const ids = facts.brokers.map(({ id }) => id);
  answer.list(facts.brokers, ({ id, port }) => answer.int32(id).string('127.0.0.1').int32(port).string(null));
  answer.int32(ids[0]!);
  answer.list(facts.topics, (topic) => {
    const error = facts.errors?.get(topic) ?? ErrorCode.none;
    answer.int16(error).string(topic).int8(0);
    answer.list(error === ErrorCode.none ? [...facts.leaders.entries()] : [], ([partition, leader]) => {
      answer.int16(ErrorCode.none).int32(partition).int32(leader);
      answer.list(ids, (id) => answer.int32(id)).list(ids, (id) => answer.int32(id));
    });
  });
  return answer.message();
}

export function producedOf({ body }: Request): Produced[] {
  body.string(); // transactional id
  body.int16(); // acks
  body.int32(); // timeout
  return body
    .list(() => {
      const topic = body.string() ?? '';
      return body.list(() => ({ topic, partition: body.int32(), values: valuesOf(body.bytes(body.int32())) }));
    })
    .flat();
}

export function produceAnswer(
  { correlation }: Request,
  answers: readonly { topic: string; partition: number; error: number; offset: number }[],
): Buffer {
  const answer = new Writer().int32(correlation);
  answer.list(answers, ({ topic, partition, error, offset }) => {
    answer.string(topic).int32(1).int32(partition).int16(error).int64(BigInt(offset)).int64(-1n);
  });
  return answer.int32(0).message();
}

/** Values of an uncompressed record batch (magic 2). */
function valuesOf(batch: Buffer): string[] {
  const reader = new Reader(batch);
  reader.bytes(57); // base offset to base sequence
  return reader.list(() => {
    reader.varint(); // length
    reader.int8(); // attributes
    reader.varint(); // timestamp delta
    reader.varint(); // offset delta
    const key = reader.varint();
    if (key > 0) reader.bytes(key);
    const value = reader.bytes(Math.max(0, reader.varint())).toString();
    for (let left = reader.varint(); left > 0; left--) {
      reader.bytes(reader.varint());
      reader.bytes(Math.max(0, reader.varint()));
    }
    return value;
  });
}
