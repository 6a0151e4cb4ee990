/**
 * Delivery orders. Every change writes the order, its activity log and its Kafka job in one transaction: all of them
 * exist afterwards, or none. Never sends anything itself; a broker that is down does not fail a request.
 */
import { ConflictException, Inject, Injectable, NotFoundException, type OnModuleInit } from '@nestjs/common';
import { InjectConnection, InjectModel } from '@nestjs/mongoose';
import type { Connection, Model } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { CLOCK, inTransaction, SideEffectService, type Clock, type Tx } from '../../index.js';
import type { CreateDeliveryOrderDto } from './delivery_order.dto.js';
import { changedEvent, type DeliveryOrderChange } from './delivery_order.events.js';
import { DeliveryStatus, mayBecome } from './delivery_order.policy.js';
import { DeliveryActivityLog, DeliveryOrder } from './delivery_order.schema.js';

const DUPLICATE_KEY = 11000;

@Injectable()
export class DeliveryOrderService implements OnModuleInit {
  constructor(
    @InjectConnection() private readonly connection: Connection,
    @InjectModel(DeliveryOrder.name) private readonly orders: Model<DeliveryOrder>,
    @InjectModel(DeliveryActivityLog.name) private readonly logs: Model<DeliveryActivityLog>,
    @Inject(SideEffectService) private readonly sideEffect: SideEffectService,
    @Inject(CLOCK) private readonly clock: Clock,
  ) {}

  /** Without its index the first requests could create one order twice. */
  async onModuleInit(): Promise<void> {
    await Promise.all([this.orders.init(), this.logs.init()]);
  }

  async create(input: CreateDeliveryOrderDto): Promise<DeliveryOrder> {
    const { delivery_no, channel, recipient, items } = input;
    return inTransaction(this.connection, async (tx) => {
      const version = await this.nextVersion(delivery_no, tx);
      const order = new this.orders({
        delivery_no,
        channel,
        recipient,
        items,
        status: DeliveryStatus.created,
        version,
      });
      await order.save({ session: tx.session }).catch(asConflict);
      await this.record(order, undefined, tx);
      return order.toObject();
    });
  }

  async changeStatus(delivery_no: string, status: DeliveryStatus): Promise<DeliveryOrder> {
    return inTransaction(this.connection, async (tx) => {
      const order = await this.orders.findOne({ delivery_no }).session(tx.session);
      if (!order) throw unknownOrder(delivery_no);
      const previous = order.status;
      if (!mayBecome(previous, status)) {
        throw new ConflictException(`delivery order ${delivery_no} is ${previous}: it cannot become ${status}`);
      }
      order.status = status;
      order.version = await this.nextVersion(delivery_no, tx);
      await order.save({ session: tx.session });
      await this.record(order, previous, tx);
      return order.toObject();
    });
  }

  async find(delivery_no: string): Promise<DeliveryOrder> {
    const order = await this.orders.findOne({ delivery_no }).lean();
    if (!order) throw unknownOrder(delivery_no);
    return order;
  }

  private nextVersion(delivery_no: string, tx: Tx): Promise<number> {
    return this.sideEffect.nextVersion(`delivery_order:${delivery_no}`, tx);
  }

  private async record(order: DeliveryOrder, previous_status: DeliveryStatus | undefined, tx: Tx): Promise<void> {
    const { delivery_no, channel, status, version } = order;
    const change: DeliveryOrderChange = {
      event_id: randomUUID(),
      delivery_no,
      channel,
      ...(previous_status && { previous_status }),
      status,
      version,
      occurred_at: this.clock.now(),
    };
    await new this.logs(change).save({ session: tx.session });
    await this.sideEffect.enqueueMany([changedEvent(change)], tx);
  }
}

const unknownOrder = (delivery_no: string): NotFoundException =>
  new NotFoundException(`delivery order ${delivery_no} is unknown`);

/** Only around the order's own write: a duplicate anywhere else is a fault, not an answer to the caller. */
function asConflict(error: unknown): never {
  if ((error as { code?: unknown }).code !== DUPLICATE_KEY) throw error;
  throw new ConflictException('a delivery order of this delivery_no exists', { cause: error });
}
