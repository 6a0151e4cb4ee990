/** The sample host. The order of imports matters: what is imported last is torn down first, so the loops stand last. */
import { Module } from '@nestjs/common';
import { MongooseModule } from '@nestjs/mongoose';
import { AdminTokensGuard } from './examples/admin_auth/admin_tokens.guard.js';
import { DELIVERY_ORDER_TOPICS } from './examples/delivery_order/delivery_order.events.js';
import { DeliveryOrderModule } from './examples/delivery_order/delivery_order.module.js';
import { JobsAdminModule, JobsHealthModule, JobsModule, JobsWorkersModule, MetricsModule } from './index.js';
import { SchedulesModule, type JobsConfig } from './index.js';
import { KafkaModule } from './kafka/kafka.module.js';

function mongoUri(): string {
  const uri = process.env['MONGO_URI'];
  if (!uri) throw new Error('MONGO_URI is not set: it names the MongoDB replica set');
  return uri;
}

/** `JOBS_HINTS=off`: lanes find their work by polls alone. The engine refuses any other word. */
function hints(): JobsConfig['hints'] {
  return (process.env['JOBS_HINTS'] || 'on') as JobsConfig['hints'];
}

@Module({
  imports: [
    MongooseModule.forRootAsync({ useFactory: () => ({ uri: mongoUri() }) }),
    JobsModule.forRoot({ hints: hints(), admin: { guards: [AdminTokensGuard] } }),
    SchedulesModule.forRoot({}),
    JobsAdminModule,
    MetricsModule.forRoot(),
    JobsHealthModule,
    KafkaModule.forRoot({ topics: DELIVERY_ORDER_TOPICS }),
    DeliveryOrderModule,
    JobsWorkersModule,
  ],
})
export class AppModule {}
