// The customers: each creates orders and changes their status through whichever pod answers.
import { setTimeout as wait } from 'node:timers/promises';
import type { Pod } from './pod.js';

const STEPS = ['picked', 'shipped', 'delivered'] as const;

export interface Tally {
  orders: number;
  changes: number;
  /** Changes the sample refused in the middle of its transaction. */
  rolled_back: number;
}

export class Customers {
  readonly tally: Tally = { orders: 0, changes: 0, rolled_back: 0 };
  private turn = 0;

  constructor(private readonly pods: () => Pod[]) {}

  /** One order through all its states; every fifth also asks for something its state does not allow. */
  async order(number: number): Promise<void> {
    const delivery_no = `DO-${number}`;
    const channel = number % 2 === 0 ? 'retail' : 'wholesale';
    const items = [{ sku: 'TEA-250G', quantity: 1 }];
    await this.send('POST', '', { delivery_no, channel, recipient: 'Ada Brown', items });
    this.tally.orders++;
    if (number % 5 === 0) {
      const answer = await this.send('PATCH', `/${delivery_no}/status`, { status: 'delivered' });
      if (answer === 409) this.tally.rolled_back++;
    }
    for (const status of STEPS) {
      await this.send('PATCH', `/${delivery_no}/status`, { status });
      this.tally.changes++;
    }
  }

  /** A pod that died may have committed before: then the repeated request is told 409, and all is well. */
  private async send(method: string, path: string, body: object): Promise<number> {
    for (let attempt = 0; attempt < 100; attempt++) {
      const pods = this.pods().filter((pod) => pod.alive);
      const pod = pods[this.turn++ % pods.length];
      try {
        const headers = { 'content-type': 'application/json' };
        const answer = await fetch(`${pod!.url}${path}`, { method, headers, body: JSON.stringify(body) });
        if (answer.status < 500) return answer.status;
      } catch {
        // the pod is gone; another one answers
      }
      await wait(100);
    }
    throw new Error(`no pod answered ${method} ${path}`);
  }
}
