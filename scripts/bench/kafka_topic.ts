// A topic of a bench's own: four partitions, removed at the end. Also the plain producer that ceilings send with.
import { Kafka, Partitioners, logLevel, type Message, type Producer } from 'kafkajs';
import { randomUUID } from 'node:crypto';

export class BenchTopic {
  readonly name = `bench-${randomUUID().slice(0, 8)}`;
  /** Calls of `send`. */
  sends = 0;
  private readonly kafka: Kafka;
  private readonly producer: Producer;

  private constructor(brokers: string) {
    this.kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.NOTHING });
    this.producer = this.kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  }

  static async create(brokers: string): Promise<BenchTopic> {
    const topic = new BenchTopic(brokers);
    const admin = topic.kafka.admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: topic.name, numPartitions: 4 }], waitForLeaders: true });
    await admin.disconnect();
    await topic.producer.connect();
    return topic;
  }

  /** One awaited call for all of them. */
  async send(messages: Message[]): Promise<void> {
    this.sends++;
    await this.producer.send({ topic: this.name, acks: -1, messages });
  }

  async remove(): Promise<void> {
    await this.producer.disconnect();
    const admin = this.kafka.admin();
    await admin.connect();
    await admin.deleteTopics({ topics: [this.name] }).catch(() => undefined);
    await admin.disconnect();
  }
}
