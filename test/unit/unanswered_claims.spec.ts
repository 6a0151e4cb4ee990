/** A claim whose reply was lost is looked for until all it may win is somebody's, and no row of it is named twice. */
import { describe, expect, it } from '@jest/globals';
import { Types } from 'mongoose';
import { UnansweredClaims } from '../../src/jobs/lanes/unanswered_claims.js';

describe('claims without an answer', () => {
  const ids = [new Types.ObjectId(), new Types.ObjectId()] as const;

  it('name a row no more once it was handed over, and go on with the others', () => {
    const claims = new UnansweredClaims();
    claims.add({ ids, token: 'a', deadline: 9 });
    claims.handOver([{ _id: ids[0], claim_token: 'a' }], 0);
    expect(claims.due(0)).toMatchObject([{ ids: [ids[1]], token: 'a' }]);
    claims.handOver([{ _id: ids[1], claim_token: 'a' }], 0);
    expect(claims.due(0)).toEqual([]);
  });

  it('still name a row that another claim won', () => {
    const claims = new UnansweredClaims();
    claims.add({ ids, token: 'a', deadline: 9 });
    claims.handOver([{ _id: ids[0], claim_token: 'b' }], 0);
    expect(claims.due(0)).toMatchObject([{ ids: [...ids] }]);
  });
});
