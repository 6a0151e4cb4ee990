// Counts what a client sends to the database. The client must have been made with `monitorCommands`; so is every
// product, ceiling and peer here, since listening costs time as well.
import type { mongo } from 'mongoose';

/** The driver's own traffic: not caused by what is measured. */
const OWN = new Set(['endSessions']);

export class CommandCount {
  private readonly counts = new Map<string, number>();

  constructor(private readonly client: mongo.MongoClient) {
    client.on('commandStarted', this.count);
  }

  private readonly count = ({ commandName }: { commandName: string }): void => {
    if (!OWN.has(commandName)) this.counts.set(commandName, (this.counts.get(commandName) ?? 0) + 1);
  };

  get total(): number {
    return [...this.counts.values()].reduce((sum, count) => sum + count, 0);
  }

  /** Commands by name. */
  get byName(): Record<string, number> {
    return Object.fromEntries(this.counts);
  }

  reset(): void {
    this.counts.clear();
  }

  stop(): void {
    this.client.off('commandStarted', this.count);
  }
}
