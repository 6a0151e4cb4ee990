// The fast lane as it would be written by hand for one purpose, without leases, order, retries or fences, one loop per
// partition. `batches`: read 100, mark once, one send of 100, one delete: what cannot be beaten by much. `rowByRow`: the
// same read, then per row a mark, an awaited send and a delete: what the engine replaces.
import type { Connection, mongo } from 'mongoose';
import type { BenchTopic } from '../kafka_topic.js';
import { inChunks, workItem } from '../work.js';

const BATCH = 100;
const LANE = 'fast';

interface Row {
  _id: mongo.ObjectId;
  partition: number;
  key: string;
  payload: unknown;
  headers: Record<string, string>;
}

export type Way = 'batches' | 'rowByRow';

export class FastLaneCeiling {
  private readonly jobs: mongo.Collection;
  private readonly partitions: mongo.Collection<{ _id: number; owner: string; in_flight: unknown }>;

  constructor(
    connection: Connection,
    private readonly topic: BenchTopic,
    private readonly count: number,
  ) {
    this.jobs = connection.db!.collection('jobs');
    this.partitions = connection.db!.collection('partitions');
  }

  /** New collections with `rows` rows, spread over the partitions; every statement was run once before. */
  async fill(rows: number): Promise<void> {
    await this.jobs.drop().catch(() => false);
    await this.partitions.drop().catch(() => false);
    await this.jobs.createIndex(
      { lane: 1, partition: 1, next_run_at: 1 },
      { name: 'ready', partialFilterExpression: { status: 'queued' } },
    );
    await this.partitions.insertMany(
      Array.from({ length: this.count }, (_, _id) => ({ _id, owner: 'me', in_flight: null })),
    );
    await this.insert(10 * this.count);
    await this.drain('batches');
    await this.insert(this.count);
    await this.drain('rowByRow');
    await this.insert(rows);
  }

  /** Answers how many rows were sent. */
  async drain(way: Way): Promise<number> {
    const loops = Array.from({ length: this.count }, (_, partition) => this[way](partition));
    return (await Promise.all(loops)).reduce((sum, sent) => sum + sent, 0);
  }

  private async insert(rows: number): Promise<void> {
    const base = Date.now() - 1_000_000;
    await inChunks(rows, 1_000, (from, to) =>
      this.jobs.insertMany(Array.from({ length: to - from }, (_, i) => this.row(from + i, new Date(base + from + i)))),
    );
  }

  private row(i: number, next_run_at: Date) {
    const { key, payload, headers } = workItem(i);
    return {
      lane: LANE,
      partition: i % this.count,
      name: 'order.created',
      topic: this.topic.name,
      key,
      payload,
      headers,
      status: 'queued',
      attempts: 0,
      created_at: new Date(),
      next_run_at,
    };
  }

  private read(partition: number): Promise<Row[]> {
    return this.jobs
      .find({ lane: LANE, partition, status: 'queued', next_run_at: { $lte: new Date() } })
      .sort({ next_run_at: 1 })
      .limit(BATCH)
      .toArray() as Promise<Row[]>;
  }

  private async mark(partition: number, rows: readonly Row[]): Promise<void> {
    const in_flight = { from: rows[0]!._id, to: rows.at(-1)!._id, count: rows.length, at: new Date() };
    await this.partitions.updateOne({ _id: partition, owner: 'me' }, { $set: { in_flight } });
  }

  private async batches(partition: number): Promise<number> {
    for (let sent = 0; ;) {
      const rows = await this.read(partition);
      if (rows.length === 0) return sent;
      await this.mark(partition, rows);
      await this.topic.send(rows.map(toMessage));
      await this.jobs.deleteMany({ _id: { $in: rows.map((row) => row._id) } });
      sent += rows.length;
    }
  }

  private async rowByRow(partition: number): Promise<number> {
    for (let sent = 0; ;) {
      const rows = await this.read(partition);
      if (rows.length === 0) return sent;
      for (const row of rows) {
        await this.mark(partition, [row]);
        await this.topic.send([toMessage(row)]);
        await this.jobs.deleteOne({ _id: row._id });
        sent++;
      }
    }
  }
}

function toMessage(row: Row) {
  return {
    key: row.key,
    value: JSON.stringify(row.payload),
    headers: { ...row.headers, job_id: row._id.toHexString() },
  };
}
