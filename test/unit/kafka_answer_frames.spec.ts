import { describe, expect, it } from '@jest/globals';
import { AnswerFrames, correlationOf, onlyErrorCode } from '../../src/kafka/answer_frames.js';
import { produceAnswer, type Request } from '../faults/bench/kafka_wire.js';

const answer = (correlation: number, ...errors: number[]): Buffer => {
  const parts = errors.map((error, partition) => ({ topic: 'orders', partition, error, offset: 7 }));
  return produceAnswer({ correlation } as Request, parts);
};

describe('answers off a socket', () => {
  it.each([1, 3, 4, 5, 1_000])('are whole again when they come in pieces of %d bytes', (size) => {
    const stream = Buffer.concat([answer(1, 0), answer(2, 20), answer(3, 0, 6)]);
    const frames = new AnswerFrames();
    const found: Buffer[] = [];
    for (let at = 0; at < stream.length; at += size) found.push(...frames.push(stream.subarray(at, at + size)));
    expect(found.map(correlationOf)).toEqual([1, 2, 3]);
    expect(found.map(onlyErrorCode)).toEqual([0, 20, undefined]);
  });

  it.each([-1, 0, 3])('end where a size of %d is no size', (size) => {
    const frames = new AnswerFrames();
    const wrong = Buffer.alloc(64);
    wrong.writeInt32BE(size);
    expect(frames.push(wrong)).toEqual([]);
    expect(frames.push(answer(1, 0))).toEqual([]);
  });

  it.each([4, 8, 12, 20])('say nothing when cut after %d bytes', (size) => {
    expect(onlyErrorCode(answer(1, 20).subarray(4, 4 + size))).toBeUndefined();
  });
});
