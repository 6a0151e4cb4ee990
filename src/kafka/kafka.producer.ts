/**
 * The pod's one producer: connects at the first send, and anew after a failure that may have left the client in a state
 * of its own (a deleted topic fails its every refresh of metadata). Disconnects after every `onModuleDestroy`, when the
 * lanes have ended. Errors while it stops are "not sent", so that they never make a row DEAD.
 */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import type { RecordMetadata } from 'kafkajs';
import { withDeadline } from './deadline.js';
import { KafkaConnection } from './kafka.connection.js';
import { KafkaSendFailure, kafkaFailure } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';
import { KAFKA_CONFIG, type KafkaConfig } from './kafka.options.js';

/** The lanes have ended or given up when the producer stops: a broker that hangs must not hold the exit. */
const SHUTDOWN_MS = 1_000;

@Injectable()
export class KafkaProducer implements OnApplicationShutdown {
  private current: KafkaConnection | undefined;
  private readonly closing = new Map<KafkaConnection, Promise<void>>();
  private stopped = false;

  constructor(@Inject(KAFKA_CONFIG) private readonly config: KafkaConfig) {}

  /** All records in one call. Throws `KafkaSendFailure`. */
  async send(records: readonly KafkaRecord[]): Promise<RecordMetadata[]> {
    if (this.stopped) throw new KafkaSendFailure('connect', new Error('the producer has stopped'));
    const connection = (this.current ??= new KafkaConnection(this.config));
    try {
      return await connection.send(records);
    } catch (error) {
      if (error instanceof KafkaSendFailure && mayBeBroken(error)) this.retire(connection);
      throw error;
    }
  }

  async onApplicationShutdown(): Promise<void> {
    this.stopped = true;
    if (this.current) this.retire(this.current);
    const closed = Promise.all(this.closing.values());
    await withDeadline('Kafka shutdown', SHUTDOWN_MS, closed).catch(() => undefined);
    for (const connection of this.closing.keys()) connection.destroy();
  }

  private retire(connection: KafkaConnection): void {
    if (this.current !== connection) return;
    this.current = undefined;
    const closed = connection.close().finally(() => this.closing.delete(connection));
    this.closing.set(connection, closed);
  }
}

/** A broker that had a word on these very records, or a record the client refused, says that the connection works. */
function mayBeBroken({ phase, cause }: KafkaSendFailure): boolean {
  const failure = kafkaFailure(cause, phase);
  if (phase === 'answered') return failure === 'not_sent' || failure === 'unknown';
  return failure !== 'invalid';
}
