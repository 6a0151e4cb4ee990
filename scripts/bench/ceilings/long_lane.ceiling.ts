// The long lane as it would be written by hand: claim 100 rows under one token in three commands, run them, end them.
// `gathered`: one delete for all rows of a claim; `oneByOne`: one delete a row, twenty at a time. No leases, no slots, no
// priorities, no codes.
import { mongo, type Connection } from 'mongoose';
import { inChunks, pool, workItem } from '../work.js';

const LANE = 'long';
const BATCH = 100;
const HANDLERS = 20;

export type Ending = 'gathered' | 'oneByOne';

export class LongLaneCeiling {
  private readonly jobs: mongo.Collection;

  constructor(connection: Connection) {
    this.jobs = connection.db!.collection('jobs');
  }

  async fill(rows: number): Promise<void> {
    await this.jobs.drop().catch(() => false);
    await this.jobs.createIndex(
      { lane: 1, next_run_at: 1 },
      { name: 'ready', partialFilterExpression: { status: 'queued' } },
    );
    await this.jobs.createIndex(
      { claim_token: 1 },
      { name: 'token', partialFilterExpression: { claim_token: { $exists: true } } },
    );
    await this.insert(2 * BATCH);
    await this.drain('oneByOne');
    await this.insert(2 * BATCH);
    await this.drain('gathered');
    await this.insert(rows);
  }

  /** Answers how many rows were run. */
  async drain(ending: Ending): Promise<number> {
    for (let run = 0; ;) {
      const rows = await this.claim();
      if (rows.length === 0) return run;
      run += await (ending === 'gathered' ? this.endTogether(rows) : this.endEach(rows));
    }
  }

  private async insert(rows: number): Promise<void> {
    const now = new Date();
    await inChunks(rows, 1_000, (from, to) =>
      this.jobs.insertMany(
        Array.from({ length: to - from }, (_, i) => {
          const { key, payload, headers } = workItem(from + i);
          const state = { status: 'queued', attempts: 0, created_at: now, next_run_at: now };
          return { lane: LANE, partition: 0, name: 'order.created', topic: 'orders', key, payload, headers, ...state };
        }),
      ),
    );
  }

  private async claim() {
    const due = { lane: LANE, status: 'queued', next_run_at: { $lte: new Date() } };
    const found = await this.jobs
      .find(due, { projection: { _id: 1 } })
      .sort({ next_run_at: 1 })
      .limit(BATCH)
      .toArray();
    if (found.length === 0) return [];
    const claim_token = new mongo.ObjectId().toString();
    await this.jobs.updateMany(
      { _id: { $in: found.map((row) => row._id) }, status: 'queued' },
      { $set: { status: 'in_flight', claim_token, claimed_at: new Date() }, $inc: { attempts: 1 } },
    );
    return this.jobs.find({ claim_token }).toArray();
  }

  private async endTogether(rows: readonly mongo.BSON.Document[]): Promise<number> {
    await Promise.all(rows.map(handle));
    const ids = rows.map((row) => row['_id'] as mongo.ObjectId);
    const { deletedCount } = await this.jobs.deleteMany({ _id: { $in: ids }, claim_token: rows[0]!['claim_token'] });
    return deletedCount;
  }

  private async endEach(rows: readonly mongo.BSON.Document[]): Promise<number> {
    let ended = 0;
    await pool(rows.length, HANDLERS, async (i) => {
      const { _id, claim_token } = rows[i]!;
      await handle();
      const { deletedCount } = await this.jobs.deleteOne({ _id: _id as mongo.ObjectId, claim_token });
      ended += deletedCount;
    });
    return ended;
  }
}

const handle = async (): Promise<void> => undefined;
