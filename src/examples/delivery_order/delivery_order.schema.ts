/** The sample's two collections. Their unique indexes hold what the service promises; it waits for them at the start. */
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

export const DeliveryOrderSchema = SchemaFactory.createForClass(DeliveryOrder);
export const DeliveryActivityLogSchema = SchemaFactory.createForClass(DeliveryActivityLog);

DeliveryActivityLogSchema.index({ delivery_no: 1, version: 1 }, { unique: true });
