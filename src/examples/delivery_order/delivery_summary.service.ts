/**
 * The sample's schedule: once a day it counts the changes of the 24 hours before its slot. A slot may run more than once
 * (a pod that died in the middle), so it writes under the slot's time: the second run replaces the first one's summary.
 */
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { InjectModel } from '@nestjs/mongoose';
import type { Model } from 'mongoose';
import { Schedule, type SlotRun } from '../../index.js';
import { DeliveryActivityLog, DeliverySummary } from './delivery_order.schema.js';

const DAY_MS = 24 * 3_600_000;

@Injectable()
export class DeliverySummaryService implements OnModuleInit {
  constructor(
    @InjectModel(DeliveryActivityLog.name) private readonly logs: Model<DeliveryActivityLog>,
    @InjectModel(DeliverySummary.name) private readonly summaries: Model<DeliverySummary>,
  ) {}

  /** Without its index two runs of one slot could write two summaries. */
  async onModuleInit(): Promise<void> {
    await this.summaries.init();
  }

  @Schedule({ code: 'daily_delivery_summary', cron: '0 0 * * *' })
  async summarize({ slot: until }: SlotRun): Promise<void> {
    const from = new Date(until.getTime() - DAY_MS);
    const changes = await this.logs.countDocuments().gte('occurred_at', from).lt('occurred_at', until);
    await this.summaries.updateOne({ until }, { until, changes }, { upsert: true });
  }
}
