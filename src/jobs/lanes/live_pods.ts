/** How many pods run the lanes, and where this one stands among them by name; told by the heartbeat. */
import { Injectable } from '@nestjs/common';
import type { Share } from '../policy/claim_plan.js';

@Injectable()
export class LivePods {
  /** Alone, until the first heartbeat has looked. */
  share: Share = { rank: 0, count: 1 };

  tell(pods: readonly string[], self: string): void {
    const sorted = [...new Set([...pods, self])].sort();
    this.share = { rank: sorted.indexOf(self), count: sorted.length };
  }
}
