/**
 * A broker's answers as they come off a socket: whole messages, and the error code of a produce answer that speaks of one
 * partition. Pure. What it cannot read it says nothing of: nobody may take an answer for another one.
 */

const SIZE_BYTES = 4;
const CORRELATION_BYTES = 4;
const STRING_SIZE_BYTES = 2;
const COUNT_BYTES = 4;
const PARTITION_BYTES = 4;

/** Cuts a stream into messages, each with its size in front. */
export class AnswerFrames {
  private rest: Buffer = Buffer.alloc(0);
  private lost = false;

  /** The messages that are complete with `chunk`, without their size. */
  push(chunk: Buffer): Buffer[] {
    const frames: Buffer[] = [];
    if (this.lost) return frames;
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
    while (this.rest.length >= SIZE_BYTES) {
      const size = this.rest.readInt32BE(0);
      // No message of the protocol: whatever follows is cut wrongly as well.
      this.lost = size < CORRELATION_BYTES;
      if (this.lost || this.rest.length < SIZE_BYTES + size) break;
      frames.push(this.rest.subarray(SIZE_BYTES, SIZE_BYTES + size));
      this.rest = this.rest.subarray(SIZE_BYTES + size);
    }
    return frames;
  }
}

export const correlationOf = (frame: Buffer): number => frame.readInt32BE(0);

/** 0: written. None when the answer speaks of more than one topic-partition, or cannot be read. */
export function onlyErrorCode(frame: Buffer): number | undefined {
  try {
    const name = CORRELATION_BYTES + COUNT_BYTES;
    const partitions = name + STRING_SIZE_BYTES + frame.readInt16BE(name);
    const one = frame.readInt32BE(CORRELATION_BYTES) === 1 && frame.readInt32BE(partitions) === 1;
    return one ? frame.readInt16BE(partitions + COUNT_BYTES + PARTITION_BYTES) : undefined;
  } catch {
    return undefined;
  }
}
