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
import type { KafkaParcel, KafkaSent } from './parcels.js';

/** The lanes have ended or given up when the producer stops: a broker that hangs must not hold the exit. */
const SHUTDOWN_MS = 1_000;

@Injectable()
export class KafkaProducer implements OnApplicationShutdown {
  private current: KafkaConnection | undefined;
  private readonly closing = new Map<KafkaConnection, Promise<void>>();
  private stopped = false;
  private opened = 0;

  constructor(@Inject(KAFKA_CONFIG) private readonly config: KafkaConfig) {}

  /** All records in one call. Throws `KafkaSendFailure`. */
  async send(records: readonly KafkaRecord[]): Promise<RecordMetadata[]> {
    return this.sendOn(this.open(), { records });
  }

  /** One call per topic-partition, side by side. Answers how each ended; throws `KafkaSendFailure` once it has stopped. */
  async sendByPartition(records: readonly KafkaRecord[]): Promise<KafkaSent[]> {
    const connection = this.open();
    // In use to the end: on another one a second connect would outlast what the lane waits.
    return connection.inUse(async () => {
      const parcels = await connection.parcels(records);
      return Promise.all(
        parcels.map(async (parcel) => {
          if (parcel.failure) this.retireIfBroken(connection, parcel.failure);
          return parcel.failure ? parcel : this.outcomeOn(connection, parcel);
        }),
      );
    });
  }

  async onApplicationShutdown(): Promise<void> {
    this.stopped = true;
    if (this.current) this.retire(this.current);
    const closed = Promise.all(this.closing.values());
    await withDeadline('Kafka shutdown', SHUTDOWN_MS, closed).catch(() => undefined);
    for (const connection of this.closing.keys()) connection.destroy();
  }

  private open(): KafkaConnection {
    if (this.stopped) throw new KafkaSendFailure('connect', new Error('the producer has stopped'));
    return (this.current ??= new KafkaConnection(this.config, this.opened++));
  }

  private async sendOn(connection: KafkaConnection, parcel: KafkaParcel): Promise<RecordMetadata[]> {
    try {
      return await connection.send(parcel);
    } catch (error) {
      this.retireIfBroken(connection, error);
      throw error;
    }
  }

  private async outcomeOn(connection: KafkaConnection, parcel: KafkaParcel): Promise<KafkaSent> {
    try {
      await this.sendOn(connection, parcel);
      return parcel;
    } catch (error) {
      return { ...parcel, failure: error instanceof KafkaSendFailure ? error : new KafkaSendFailure('written', error) };
    }
  }

  private retireIfBroken(connection: KafkaConnection, error: unknown): void {
    if (error instanceof KafkaSendFailure && mayBeBroken(error)) this.retire(connection);
  }

  private retire(connection: KafkaConnection): void {
    if (this.current !== connection) return;
    this.current = undefined;
    const closed = connection.close().finally(() => this.closing.delete(connection));
    this.closing.set(connection, closed);
  }
}

/** A broker that had a word on these very records, or a record the client refused, says that the connection works. */
function mayBeBroken(error: KafkaSendFailure): boolean {
  const failure = kafkaFailure(error);
  if (error.phase === 'answered' || error.phase === 'written') return failure === 'not_sent' || failure === 'unknown';
  return failure !== 'invalid';
}
