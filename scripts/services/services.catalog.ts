// The three services and, for each, where it may come from, in the order of trying.
import { apacheKafka, kafkaMock } from './kafka/kafka.providers.js';
import { documentDb, memoryServer } from './mongo/mongo.providers.js';
import { redisServer } from './redis/redis.provider.js';
import type { Service, ServiceName } from './services.types.js';

export const CATALOG: Record<ServiceName, Service> = {
  mongo: {
    name: 'mongo',
    title: 'MongoDB',
    variable: 'MONGO_URI',
    key: 'mongoUri',
    providers: [memoryServer, documentDb],
  },
  kafka: {
    name: 'kafka',
    title: 'Kafka',
    variable: 'KAFKA_BROKERS',
    key: 'kafkaBrokers',
    providers: [apacheKafka, kafkaMock],
  },
  redis: {
    name: 'redis',
    title: 'Redis',
    variable: 'QUEUE_REDIS_URL',
    key: 'redisUrl',
    providers: [redisServer],
  },
};

export const SERVICE_NAMES: ServiceName[] = ['mongo', 'kafka', 'redis'];
