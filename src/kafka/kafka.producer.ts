/**
 * The pod's one producer: connects at the first send, and anew after a failure that may have left the client in a state
 * of its own (a deleted topic fails its every refresh of metadata). Disconnects after every `onModuleDestroy`, when the
 * lanes have ended. Errors while it stops are "not sent", so that they never make a row DEAD.
 */
import { Inject, Injectable, type OnApplicationShutdown } from '@nestjs/common';
import type { RecordMetadata } from 'kafkajs';
import { KafkaConnection } from './kafka.connection.js';
import { KafkaSendFailure, kafkaFailure } from './kafka.errors.js';
import type { KafkaRecord } from './kafka.message.js';
import { KAFKA_CONFIG, type KafkaConfig } from './kafka.options.js';

@Injectable()
export class KafkaProducer implements OnApplicationShutdown {
  private current: KafkaConnection | undefined;
  private readonly closing = new Set<Promise<void>>();
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
    await Promise.all(this.closing);
  }

  private retire(connection: KafkaConnection): void {
    if (this.current !== connection) return;
    this.current = undefined;
    const closing = connection.close().finally(() => this.closing.delete(closing));
    this.closing.add(closing);
  }
}

/** A broker that had a word on these very records, or a record the client refused, says that the connection works. */
function mayBeBroken({ phase, cause }: KafkaSendFailure): boolean {
  const failure = kafkaFailure(cause, phase);
  if (phase === 'answered') return failure === 'not_sent' || failure === 'unknown';
  return failure !== 'invalid';
}
