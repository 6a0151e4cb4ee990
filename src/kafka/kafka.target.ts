/**
 * Registers the `kafka:<topic>` targets. At least once: one call of the client for a whole batch. At most once: one
 * record, and so one topic-partition, per call, because an error must speak for exactly the rows in it. Never tells the
 * engine "not sent" of a record that may have left.
 */
import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { BootError } from '../common/errors.js';
import { DeliveryMode, JobLane, type BatchAnswer, type Job } from '../jobs/jobs.types.js';
import { JobTargetsRegistry } from '../jobs/targets/job_targets.registry.js';
import { JobRejected, TargetOutcomeUnknown, TargetUnreachable } from '../jobs/targets/target_errors.js';
import { withDeadline } from './deadline.js';
import { DEADLINE_GRACE_MS } from './kafka.connection.js';
import { KafkaSendFailure, kafkaFailure } from './kafka.errors.js';
import { INVALID_RECORD, toRecord, type KafkaRecord } from './kafka.message.js';
import { KAFKA_CONFIG, type KafkaConfig, type KafkaSettings, type KafkaTopic } from './kafka.options.js';
import { KafkaProducer } from './kafka.producer.js';

/** A broker takes 1 MiB at once by default (`message.max.bytes`), keys, headers and framing included. */
const BATCH_BYTES = 900 * 1024;
/** With connect and request this stays below the lane's own deadline, which would make it an unknown end. */
const SETTINGS_TIMEOUT_MS = 1_000;

export const kafkaTargetName = (topic: string): string => `kafka:${topic}`;

@Injectable()
export class KafkaTargets implements OnModuleInit {
  constructor(
    @Inject(KAFKA_CONFIG) private readonly config: KafkaConfig,
    @Inject(KafkaProducer) private readonly producer: KafkaProducer,
    @Inject(JobTargetsRegistry) private readonly registry: JobTargetsRegistry,
  ) {}

  onModuleInit(): void {
    for (const target of this.config.targets) this.register(target);
  }

  private register({ topic, delivery_mode }: KafkaTopic): void {
    const common = { name: kafkaTargetName(topic), lane: JobLane.fast, delivery_mode, batch_bytes: BATCH_BYTES };
    if (delivery_mode === DeliveryMode.atLeastOnce) {
      this.registry.register({ ...common, batch_handler: (jobs) => this.sendBatch(topic, jobs) });
    } else this.registry.register({ ...common, handler: (job) => this.sendOne(topic, job) });
    this.assertFits(common.name);
  }

  /** The lane's deadline makes an unknown end of a run, so ours must come first, also of a run that sent nothing. */
  private assertFits(name: string): void {
    const { connect_timeout_ms, request_timeout_ms } = this.config;
    const longest = SETTINGS_TIMEOUT_MS + connect_timeout_ms + request_timeout_ms + DEADLINE_GRACE_MS;
    const { timeout_ms } = this.registry.require(name);
    if (longest <= timeout_ms) return;
    throw new BootError(
      'invalid_options',
      `kafka.request_timeout_ms: with connect_timeout_ms and ${SETTINGS_TIMEOUT_MS + DEADLINE_GRACE_MS} ms for the rest expected at most fast_lane.timeout_ms (${timeout_ms}), got ${longest}`,
      'kafka.request_timeout_ms',
    );
  }

  private async sendOne(topic: string, job: Job): Promise<void> {
    const topicOf = await this.topics(topic);
    await this.deliver([toRecord(job, topicOf(job))]);
  }

  private async sendBatch(topic: string, jobs: readonly Job[]): Promise<BatchAnswer> {
    const topicOf = await this.topics(topic);
    const records: KafkaRecord[] = [];
    const answer = jobs.map((job): Error | undefined => {
      try {
        records.push(toRecord(job, topicOf(job)));
        return undefined;
      } catch (error) {
        return error as Error; // the client would refuse the whole batch for it
      }
    });
    if (records.length > 0) await this.deliver(records);
    return answer;
  }

  private async deliver(records: readonly KafkaRecord[]): Promise<void> {
    try {
      await this.producer.send(records);
    } catch (error) {
      throw error instanceof KafkaSendFailure ? targetError(error, records.length) : error;
    }
  }

  /** Which topic a job goes to now, or `TargetUnreachable` with the reason why nothing may be sent. */
  private async topics(topic: string): Promise<(job: Job) => string> {
    const { brokers, events, topic_names } = this.config;
    const settings = await this.settings();
    if (!(settings.enabled ?? this.config.enabled)) throw new TargetUnreachable('Kafka is disabled in the settings');
    if (brokers.length === 0) throw new TargetUnreachable('no Kafka brokers are configured');
    const names = new Map(Object.entries({ ...topic_names, ...settings.topic_names }));
    return (job) => (events.has(job.code) && names.get(job.code)) || topic;
  }

  private async settings(): Promise<KafkaSettings> {
    const read = this.config.settings;
    if (!read) return {};
    try {
      return await withDeadline('Kafka settings', SETTINGS_TIMEOUT_MS, (async () => read())());
    } catch (cause) {
      throw new TargetUnreachable('the Kafka settings cannot be read', { cause });
    }
  }
}

/** The reference's table, in the engine's words. */
function targetError({ phase, cause, message }: KafkaSendFailure, records: number): unknown {
  switch (kafkaFailure(cause, phase)) {
    case 'not_sent':
      return new TargetUnreachable(message, { cause });
    case 'unknown':
      return new TargetOutcomeUnknown(message, { cause });
    case 'timed_out':
      return new TargetOutcomeUnknown(message, { cause, target_up: true });
    case 'invalid':
      // One record of many is meant: as an answer to all, each is tried alone before any goes DEAD.
      return records > 1 ? cause : new JobRejected(`${INVALID_RECORD}: ${message}`, { cause });
    case 'answered':
      return cause;
  }
}
