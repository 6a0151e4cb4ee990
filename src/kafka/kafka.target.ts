/**
 * Registers the `kafka:<topic>` targets. At least once: one call of the client for a whole batch. At most once: one
 * topic-partition per call, because an error must speak for exactly the rows in it; with one row in flight, one record.
 * Never tells the engine "not sent" of a record that may have left.
 */
import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { BootError } from '../common/errors.js';
import { DeliveryMode, JobLane, type BatchAnswer, type Job } from '../jobs/jobs.types.js';
import { JobTargetsRegistry } from '../jobs/targets/job_targets.registry.js';
import {
  JobHeldBack,
  JobRejected,
  SharedFailure,
  TargetOutcomeUnknown,
  TargetUnreachable,
} from '../jobs/targets/target_errors.js';
import { withDeadline } from './deadline.js';
import { DEADLINE_GRACE_MS } from './kafka.connection.js';
import { KafkaSendFailure, kafkaFailure } from './kafka.errors.js';
import { INVALID_RECORD, toRecord, type KafkaRecord } from './kafka.message.js';
import { KAFKA_CONFIG, type KafkaConfig, type KafkaSettings, type KafkaTopic } from './kafka.options.js';
import { KafkaProducer } from './kafka.producer.js';
import type { KafkaSent } from './parcels.js';

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

  private register({ topic, delivery_mode, max_in_flight }: KafkaTopic): void {
    const in_flight = max_in_flight === undefined ? {} : { max_in_flight };
    const rules = { lane: JobLane.fast, delivery_mode, batch_bytes: BATCH_BYTES, ...in_flight };
    const common = { name: kafkaTargetName(topic), ...rules };
    if (delivery_mode === DeliveryMode.atLeastOnce) {
      this.registry.register({ ...common, batch_handler: (jobs) => this.sendBatch(topic, jobs) });
    } else if (max_in_flight !== undefined && max_in_flight > 1) {
      this.registry.register({ ...common, batch_handler: (jobs) => this.sendByPartition(topic, jobs) });
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

  private async sendByPartition(topic: string, jobs: readonly Job[]): Promise<BatchAnswer> {
    // The client places one record itself, and has more time for it: a probe brings back a cluster that is slow to tell
    // its partitions, which a batch waits for no longer than for a connect.
    if (jobs.length === 1) return this.sendOne(topic, jobs[0]!);
    const { rows, answer } = rowsToSend(jobs, await this.topics(topic));
    if (rows.size === 0) return answer;
    for (const { records, failure } of await this.sendRows([...rows.keys()])) {
      if (failure) for (const record of records) answer[rows.get(record)!] = rowError(failure, records.length);
    }
    return answer;
  }

  private async sendRows(records: readonly KafkaRecord[]): Promise<KafkaSent[]> {
    try {
      return await this.producer.sendByPartition(records);
    } catch (error) {
      throw error instanceof KafkaSendFailure ? targetError(error, records.length) : error;
    }
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
      // Against the types: a lookup that finds no record answers null.
      const found = await withDeadline('Kafka settings', SETTINGS_TIMEOUT_MS, (async () => read())());
      return (found as KafkaSettings | null | undefined) ?? {};
    } catch (cause) {
      throw new TargetUnreachable('the Kafka settings cannot be read', { cause });
    }
  }
}

/**
 * The records of a batch by their rows, and what is known of the others. Of a key, only what goes to one topic is sent by
 * one batch: sends to two would run side by side, and a later row could arrive without its predecessor.
 */
function rowsToSend(
  jobs: readonly Job[],
  topicOf: (job: Job) => string,
): { rows: Map<KafkaRecord, number>; answer: (Error | undefined)[] } {
  const rows = new Map<KafkaRecord, number>();
  const sentTo = new Map<string, string | undefined>();
  const answer = jobs.map((job, index): Error | undefined => {
    const topic = topicOf(job);
    const { key } = job;
    if (key !== undefined && sentTo.has(key) && sentTo.get(key) !== topic) {
      sentTo.set(key, undefined);
      return new JobHeldBack(`key ${key}: a row before it is not sent to ${topic} by the same call`);
    }
    try {
      rows.set(toRecord(job, topic), index);
      if (key !== undefined) sentTo.set(key, topic);
      return undefined;
    } catch (error) {
      if (key !== undefined) sentTo.set(key, undefined);
      return error as Error;
    }
  });
  return { rows, answer };
}

/** What a parcel's failure says of each of its rows. */
function rowError(failure: KafkaSendFailure, rows: number): Error {
  const error = targetError(failure, rows);
  const meansAll = error instanceof TargetUnreachable || error instanceof TargetOutcomeUnknown;
  if (rows > 1 && !meansAll) return new SharedFailure(error);
  return error instanceof Error ? error : new Error(String(error), { cause: error });
}

/** The reference's table, in the engine's words. */
function targetError(failure: KafkaSendFailure, records: number): unknown {
  const { cause, message } = failure;
  switch (kafkaFailure(failure)) {
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
