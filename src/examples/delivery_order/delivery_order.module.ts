/** The sample's business module. Injects `SideEffectService` from the global `JobsModule`, and knows no Kafka client. */
import { Module } from '@nestjs/common';
import { MongooseModule } from '@nestjs/mongoose';
import { DeliveryOrderController } from './delivery_order.controller.js';
import { DeliveryActivityLog, DeliveryActivityLogSchema } from './delivery_order.schema.js';
import { DeliveryOrder, DeliveryOrderSchema } from './delivery_order.schema.js';
import { DeliverySummary, DeliverySummarySchema } from './delivery_order.schema.js';
import { DeliveryOrderService } from './delivery_order.service.js';
import { DeliverySummaryService } from './delivery_summary.service.js';

@Module({
  imports: [
    MongooseModule.forFeature([
      { name: DeliveryOrder.name, schema: DeliveryOrderSchema },
      { name: DeliveryActivityLog.name, schema: DeliveryActivityLogSchema },
      { name: DeliverySummary.name, schema: DeliverySummarySchema },
    ]),
  ],
  controllers: [DeliveryOrderController],
  providers: [DeliveryOrderService, DeliverySummaryService],
})
export class DeliveryOrderModule {}
