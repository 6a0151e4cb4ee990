/** The public API of Sidelane. Hosts import nothing else. */
export {
  SidelaneError,
  InvalidInputError,
  BootError,
  ClaimLostError,
  CommitUnknownError,
  NoAnswerError,
  TransactionEndedError,
} from './common/errors.js';
export { CLOCK, type Clock } from './common/ports/clock.js';
export { requestContext, type ContextStore, type RequestContext } from './common/request_context.js';
export {
  inTransaction,
  afterCommit,
  Tx,
  type ForeignTx,
  type InTransactionOptions,
} from './common/utils/transaction.js';
export { JobsModule } from './jobs/jobs.module.js';
export { JobsWorkersModule } from './jobs/jobs_workers.module.js';
export { endOnSignals } from './jobs/end_on_signals.js';
export { JobsAdminModule } from './jobs/admin/jobs_admin.module.js';
export { JOBS_DEFAULTS, type JobsConfig, type JobsModuleOptions, type WorkersMode } from './jobs/jobs.options.js';
export {
  JobsEvents,
  type JobsEvent,
  type JobsListener,
  type HintedCell,
  type LossyDropReason,
} from './jobs/jobs.events.js';
export * from './jobs/jobs.types.js';
export type { EnqueueOptions } from './jobs/enqueue_options.js';
export {
  SideEffectService,
  type EnqueueItem,
  type EnqueueResult,
  type TxArgument,
} from './jobs/side_effect.service.js';
export {
  JobTargetsRegistry,
  type RegisteredTarget,
  type JobTargetOptions,
  type CodeRules,
} from './jobs/targets/job_targets.registry.js';
export type { RateLimit } from './jobs/policy/rate_limit.js';
export type { RetryPolicy, DelaysPolicy, ExponentialPolicy } from './jobs/policy/retry.js';
export { JobTarget, type JobTargetDeclaration, type JobTargetProvider } from './jobs/targets/job_target.decorator.js';
export { defineTarget, type DefinedTarget, type JobTargetRef, type PayloadOf } from './jobs/targets/target_ref.js';
export type { PayloadSchema } from './jobs/targets/payload_schema.js';
export { SchedulesModule } from './schedules/schedules.module.js';
export { SchedulesService } from './schedules/schedules.service.js';
export { Schedule } from './schedules/schedule.decorator.js';
export type { SchedulesModuleOptions } from './schedules/schedules.options.js';
export type {
  ScheduleDeclaration,
  ScheduleHandler,
  ScheduleOptions,
  SlotRun,
} from './schedules/schedule_declaration.js';
export { MissedSlotPolicy } from './schedules/schedule_rules.js';
export { JobsMetrics } from './jobs/observability/jobs.metrics.js';
export { MetricsModule, type MetricsModuleOptions } from './jobs/observability/metrics.module.js';
export { JobsHealthModule } from './jobs/observability/health.module.js';
export { JobsHealthIndicator, type JobsHealthResult } from './jobs/observability/health_indicator.js';
export { EngineHealth, type HealthReport } from './jobs/observability/engine_health.js';
export { KafkaModule } from './kafka/kafka.module.js';
export type { KafkaModuleOptions, KafkaSettings, KafkaTopicOptions } from './kafka/kafka.options.js';
export { KafkaProducer } from './kafka/kafka.producer.js';
export { kafkaTargetName } from './kafka/kafka.target.js';
export {
  TargetUnreachable,
  TargetOutcomeUnknown,
  JobRejected,
  SharedFailure,
  JobHeldBack,
} from './jobs/targets/target_errors.js';
