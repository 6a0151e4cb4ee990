// What reached the topics, in the order it arrived, and what that says about the promises.
import { Kafka, logLevel, type Consumer } from 'kafkajs';

export interface Arrival {
  topic: string;
  event_id: string;
  key: string;
  version: number;
}

export class Arrivals {
  readonly all: Arrival[] = [];
  private consumer: Consumer | undefined;

  async listen(brokers: string, topics: string[]): Promise<void> {
    const kafka = new Kafka({
      brokers: [brokers],
      logLevel: logLevel.NOTHING,
      retry: { retries: 50, maxRetryTime: 2_000 },
    });
    this.consumer = kafka.consumer({ groupId: `demo-${process.pid}`, sessionTimeout: 60_000 });
    await this.consumer.connect();
    await this.consumer.subscribe({ topics, fromBeginning: true });
    await this.consumer.run({
      eachMessage: async ({ topic, message }) => {
        const { version } = JSON.parse(String(message.value)) as { version: number };
        const event_id = String(message.headers?.['event_id']);
        this.all.push({ topic, event_id, key: String(message.key), version });
      },
    });
  }

  stop(): Promise<void> {
    return this.consumer?.disconnect() ?? Promise.resolve();
  }

  /** First arrivals, by key and version. */
  get delivered(): Set<string> {
    return new Set(this.all.map(({ key, version }) => `${key}:${version}`));
  }

  duplicates(topic: string): number {
    const here = this.all.filter((arrival) => arrival.topic === topic);
    return here.length - new Set(here.map((arrival) => arrival.event_id)).size;
  }

  /** First arrivals that came after a higher version of their key. */
  outOfOrder(): number {
    const seen = new Set<string>();
    const highest = new Map<string, number>();
    let count = 0;
    for (const { event_id, key, version } of this.all) {
      if (seen.has(event_id)) continue; // a second arrival is a duplicate, not a matter of order
      seen.add(event_id);
      if (version < (highest.get(key) ?? 0)) count++;
      highest.set(key, Math.max(version, highest.get(key) ?? 0));
    }
    return count;
  }
}
