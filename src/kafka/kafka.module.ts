/**
 * Kafka topics as job targets. Needs the global `JobsModule` for the registry and nothing else of the engine. Import it
 * before `JobsWorkersModule`, so that the lanes end before the producer does.
 */
import { ConfigurableModuleBuilder, Module } from '@nestjs/common';
import { KAFKA_CONFIG, resolveKafkaOptions, type KafkaModuleOptions } from './kafka.options.js';
import { KafkaProducer } from './kafka.producer.js';
import { KafkaTargets } from './kafka.target.js';

const { ConfigurableModuleClass, MODULE_OPTIONS_TOKEN } = new ConfigurableModuleBuilder<KafkaModuleOptions>({
  moduleName: 'Kafka',
})
  .setClassMethodName('forRoot')
  .build();

@Module({
  providers: [
    {
      provide: KAFKA_CONFIG,
      useFactory: (raw: KafkaModuleOptions) => resolveKafkaOptions(raw),
      inject: [MODULE_OPTIONS_TOKEN],
    },
    KafkaProducer,
    KafkaTargets,
  ],
  exports: [KafkaProducer],
})
export class KafkaModule extends ConfigurableModuleClass {}
