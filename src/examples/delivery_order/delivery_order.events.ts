/**
 * The event of a changed delivery order: which topic, which key, which order. One change makes one event, whose
 * `dedupe_key` comes from the change itself, so that a replay of the change cannot make a second one.
 */
import { DeliveryMode, type EnqueueItem } from '../../index.js';
import { Channel, type DeliveryStatus } from './delivery_order.policy.js';

export interface DeliveryOrderChange {
  event_id: string;
  delivery_no: string;
  channel: Channel;
  /** Missing for a new order. */
  previous_status?: DeliveryStatus;
  status: DeliveryStatus;
  /** 1 for the new order, and one more for every change after it. */
  version: number;
  occurred_at: Date;
}

/** For `KafkaModule`. Retail takes no event twice; wholesale would rather see one twice than miss one. */
export const DELIVERY_ORDER_TOPICS = [
  {
    event: 'delivery_order_changed_retail',
    default_topic: 'delivery-orders-retail',
    delivery_mode: DeliveryMode.atMostOnce,
  },
  {
    event: 'delivery_order_changed_wholesale',
    default_topic: 'delivery-orders-wholesale',
    delivery_mode: DeliveryMode.atLeastOnce,
  },
];

const [RETAIL, WHOLESALE] = DELIVERY_ORDER_TOPICS;

export function changedEvent(change: DeliveryOrderChange): EnqueueItem {
  const { event, default_topic } = (change.channel === Channel.retail ? RETAIL : WHOLESALE)!;
  const { event_id, delivery_no, version } = change;
  return {
    target: `kafka:${default_topic}`,
    code: event,
    key: delivery_no,
    version,
    dedupe_key: `${event}:${delivery_no}:${version}`,
    payload: { event, ...change },
    headers: { event_id },
  };
}
