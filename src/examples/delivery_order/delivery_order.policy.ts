/** What a delivery order may become. Pure. Knows nothing of databases, HTTP or Kafka. */

export const Channel = { retail: 'retail', wholesale: 'wholesale' } as const;
export type Channel = (typeof Channel)[keyof typeof Channel];

export const DeliveryStatus = {
  created: 'created',
  picked: 'picked',
  shipped: 'shipped',
  delivered: 'delivered',
  cancelled: 'cancelled',
} as const;
export type DeliveryStatus = (typeof DeliveryStatus)[keyof typeof DeliveryStatus];

const NEXT: Readonly<Record<DeliveryStatus, readonly DeliveryStatus[]>> = {
  created: ['picked'],
  picked: ['shipped'],
  shipped: ['delivered', 'cancelled'],
  delivered: [],
  cancelled: [],
};

export const mayBecome = (from: DeliveryStatus, to: DeliveryStatus): boolean => NEXT[from].includes(to);
