// Promises: documents go in and out as BSON bytes, and what is decoded only to be sent on arrives as it came.
// Must never turn a 64-bit integer into a double: drivers read cursor ids as 64-bit integers only.
import { deserialize, serialize } from 'bson';
import type { Binary, Document } from 'bson';

export type { Document } from 'bson';

/** For reading: numbers come as numbers, except 64-bit integers, which a reply must give back as such (cursor ids). */
export function decode(bytes: Uint8Array): Document {
  return deserialize(bytes, { promoteLongs: false });
}

/** For sending on: each number keeps its type. */
export function decodeExactly(bytes: Uint8Array): Document {
  return deserialize(bytes, { promoteValues: false });
}

export function encode(document: Document): Buffer {
  const bytes = serialize(document, { ignoreUndefined: true });
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The documents of a run of BSON documents laid end to end, as slices of it. */
export function splitSequence(sequence: Buffer): Buffer[] {
  const documents: Buffer[] = [];
  for (let at = 0; at < sequence.length;) {
    const size = sequence.readInt32LE(at);
    documents.push(sequence.subarray(at, at + size));
    at += size;
  }
  return documents;
}

/** A text that is equal for equal session ids, whatever the driver that made them. */
export function sessionKey(lsid: unknown): string | undefined {
  const id = (lsid as { id?: Binary } | undefined)?.id;
  return id?.buffer ? Buffer.from(id.buffer).toString('hex') : undefined;
}
