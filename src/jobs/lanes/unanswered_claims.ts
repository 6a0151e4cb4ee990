/**
 * Claims whose rows nobody has been handed yet: whatever they won is ours, under tokens we know, and runs nowhere. A claim
 * whose reply was lost may still wait for its turn, or for its majority, when the next round looks for its rows: so it is
 * looked for a while longer. Holds what to ask for; asks nothing itself, and never names a row that was handed over again.
 */
import type { Types } from 'mongoose';
import { claimId } from '../store/long_lane.store.js';
import type { JobDoc } from '../store/jobs.schema.js';

export interface OpenClaim {
  readonly ids: readonly Types.ObjectId[];
  readonly token: string;
  /** Monotonic time until which the claim is trusted. */
  readonly deadline: number;
  /** The database told what it won: there is nothing to come any more. */
  answered: boolean;
  /** Monotonic time of the next look. */
  lookAt: number;
  /** Monotonic time of the last look; known once there was a first. */
  lookUntil: number;
}

/** How long a claim may still arrive after the first look for its rows, in ms. */
const LATE_MS = 30_000;

/** Wait between two looks, in ms: a busy lane has many rounds a second. */
const LOOK_MS = 1_000;

export class UnansweredClaims {
  private claims: OpenClaim[] = [];

  add(claim: Pick<OpenClaim, 'ids' | 'token' | 'deadline'>): OpenClaim {
    const open = { ...claim, answered: false, lookAt: 0, lookUntil: Infinity };
    this.claims.push(open);
    return open;
  }

  /** Those whose rows are to be looked for now. */
  due(now: number): OpenClaim[] {
    return this.claims.filter(({ lookAt }) => lookAt <= now);
  }

  /** Their rows were looked for. */
  looked(claims: readonly OpenClaim[], now: number): void {
    for (const claim of claims) {
      claim.lookAt = now + LOOK_MS;
      claim.lookUntil = Math.min(claim.lookUntil, now + LATE_MS);
    }
  }

  /** These rows are somebody's now. Forgets the claims that have nothing more to come. */
  handOver(rows: readonly Pick<JobDoc, '_id' | 'claim_token'>[], now: number): void {
    const handed = new Set(rows.map(claimId));
    this.claims = this.claims.flatMap((claim) => {
      if (claim.answered || now >= claim.lookUntil) return [];
      const ids = claim.ids.filter((_id) => !handed.has(claimId({ _id, claim_token: claim.token })));
      return ids.length > 0 ? [{ ...claim, ids }] : [];
    });
  }
}
