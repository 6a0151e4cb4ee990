/** The sample's collections. Their unique indexes hold what the service promises; it waits for them at the start. */
import { Prop, Schema, SchemaFactory } from '@nestjs/mongoose';
import { Channel, DeliveryStatus } from './delivery_order.policy.js';

const TIMESTAMPS = { createdAt: 'created_at', updatedAt: 'updated_at' } as const;

@Schema({ _id: false })
export class DeliveryItem {
  @Prop({ type: String, required: true })
  sku: string;

  @Prop({ type: Number, required: true })
  quantity: number;
}

@Schema({ collection: 'delivery_orders', timestamps: TIMESTAMPS, versionKey: false })
export class DeliveryOrder {
  @Prop({ type: String, required: true, unique: true })
  delivery_no: string;

  @Prop({ type: String, required: true, enum: Object.values(Channel) })
  channel: Channel;

  @Prop({ type: String, required: true })
  recipient: string;

  @Prop({ type: [SchemaFactory.createForClass(DeliveryItem)], required: true })
  items: DeliveryItem[];

  @Prop({ type: String, required: true, enum: Object.values(DeliveryStatus) })
  status: DeliveryStatus;

  /** That of the order's latest change. */
  @Prop({ type: Number, required: true })
  version: number;

  created_at: Date;
  updated_at: Date;
}

@Schema({ collection: 'delivery_activity_logs', versionKey: false })
export class DeliveryActivityLog {
  @Prop({ type: String, required: true })
  delivery_no: string;

  @Prop({ type: Number, required: true })
  version: number;

  @Prop({ type: String, enum: Object.values(DeliveryStatus) })
  previous_status?: DeliveryStatus;

  @Prop({ type: String, required: true, enum: Object.values(DeliveryStatus) })
  status: DeliveryStatus;

  @Prop({ type: String, required: true })
  event_id: string;

  @Prop({ type: Date, required: true })
  occurred_at: Date;
}

/** How many changes there were in the 24 hours up to `until`. */
@Schema({ collection: 'delivery_summaries', versionKey: false })
export class DeliverySummary {
  @Prop({ type: Date, required: true, unique: true })
  until: Date;

  @Prop({ type: Number, required: true })
  changes: number;
}

export const DeliveryOrderSchema = SchemaFactory.createForClass(DeliveryOrder);
export const DeliveryActivityLogSchema = SchemaFactory.createForClass(DeliveryActivityLog);
export const DeliverySummarySchema = SchemaFactory.createForClass(DeliverySummary);

DeliveryActivityLogSchema.index({ delivery_no: 1, version: 1 }, { unique: true });
// The summary's count reads its day, not all days.
DeliveryActivityLogSchema.index({ occurred_at: 1 });
