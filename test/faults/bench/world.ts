/** Everything one scenario has: a database of its own, pods behind proxies of their own, and the list of what was done to them. */
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CrashPoint } from '../../../src/common/ports/crash_points.js';
import type { JobDoc } from '../../../src/jobs/store/jobs.schema.js';
import type { DurableDatabase } from './durable_database.js';
import { MongoProxy } from './mongo_proxy.js';
import { PodProcess } from './pod_process.js';
import type { PodSettings } from './pod_settings.js';
import { SeededRandom } from './random.js';
import type { ProducedRow, Violation } from './invariants.js';
import { until } from './takeover.js';

export type Wishes = Partial<Omit<PodSettings, 'name' | 'uri' | 'db' | 'folder'>> & {
  crash?: { point: CrashPoint; nth: number };
};

/** A server that went away is found again soon after it is back. */
const PATIENCE = { heartbeatFrequencyMS: 500 };

export class World {
  readonly random: SeededRandom;
  readonly folder = mkdtempSync(join(tmpdir(), 'sidelane-faults-'));
  readonly pods: PodProcess[] = [];
  /** Every fault, in order: the same for the same seed. */
  readonly faults: string[] = [];
  /** Rows an admin laid hands on, by id: afterwards they may be gone. */
  readonly touched: { id: string; n: string }[] = [];
  /** Rows that an admin took away (cancel, skip) and that were seen gone, with the machine's time of that look. */
  readonly removed: { n: string; at: number }[] = [];
  /** What the scenario itself found broken. */
  readonly violations: Violation[] = [];
  /** Rows that may be DEAD at the end though their mode and behaviour do not say so. */
  expectDead: (row: ProducedRow) => boolean = (row) => row.behaviour === 'reject';
  /** What new pods are told unless they are told otherwise. */
  defaults: Partial<PodSettings> = {};
  /** Clock of the database, as every pod sees it: so far ahead. Pods that run must not be told another one. */
  databaseClockMs = 0;

  /** Of a calm scenario (`Scenario.calm`). */
  calm = false;

  private kept = false;

  private constructor(
    readonly seed: string,
    readonly connection: Connection,
    private readonly databasePort: number,
    readonly db: string,
    /** The scenario's own server, where it has one. */
    readonly server: DurableDatabase | undefined,
  ) {
    this.random = new SeededRandom(seed);
  }

  static async open(seed: string, server?: DurableDatabase): Promise<World> {
    const uri = server?.uri ?? process.env['MONGO_URI'];
    if (!uri) throw new Error('MONGO_URI is not set: start the services first');
    const db = `faults_${randomUUID().slice(0, 8)}`;
    const connection = await mongoose.createConnection(uri, { dbName: db, ...PATIENCE }).asPromise();
    // A transaction cannot create its collection everywhere.
    for (const name of ['produced', 'mourned']) await connection.createCollection(name);
    return new World(seed, connection, Number(new URL(uri).port || '27017'), db, server);
  }

  get jobs(): mongoose.mongo.Collection<JobDoc> {
    return this.connection.db!.collection<JobDoc>('jobs');
  }

  get alive(): PodProcess[] {
    return this.pods.filter((pod) => pod.alive && !pod.stopping);
  }

  /** Starts a pod; it may not be up yet. */
  async start({ crash, ...wishes }: Wishes = {}): Promise<PodProcess> {
    const proxy = await MongoProxy.open(this.databasePort);
    proxy.clockMs = this.databaseClockMs;
    const settings: PodSettings = {
      name: `p${this.pods.length + 1}`,
      seed: this.seed,
      uri: proxy.uri,
      db: this.db,
      folder: this.folder,
      version: 1,
      patient: this.calm,
      clock_offset_ms: 0,
      produce_per_s: 5,
      max_crashes: 50,
      ...this.defaults,
      ...wishes,
    };
    const pod = new PodProcess(settings, proxy, crash);
    this.pods.push(pod);
    return pod;
  }

  /** Starts pods and waits until they run. */
  async boot(count: number, wishes: Wishes = {}): Promise<PodProcess[]> {
    const pods = await Promise.all(Array.from({ length: count }, () => this.start(wishes)));
    await Promise.all(pods.map((pod) => this.up(pod)));
    return pods;
  }

  async up(pod: PodProcess): Promise<void> {
    if (!(await pod.ready())) throw new Error(`${pod.name} did not start:\n${pod.output}`);
  }

  /** Notes a fault of the schedule. */
  fault(text: string): void {
    this.faults.push(text);
  }

  violated(invariant: Violation['invariant'], text: string): void {
    this.violations.push({ invariant, text });
  }

  /** A wait whose length is part of the schedule. */
  async wait(from: number, to = from): Promise<number> {
    const ms = this.random.int(from, to);
    await sleep(ms);
    return ms;
  }

  /** Until so many rows more were committed, or it took too long: on a slow machine time alone says little about load. */
  async business(rows: number): Promise<void> {
    const produced = this.connection.collection('produced');
    const before = await produced.countDocuments();
    await until(async () => (await produced.countDocuments()) >= before + rows);
  }

  /** A target is away until the answer is called: its handlers say so. */
  takeDown(target: string): () => void {
    const file = join(this.folder, `down ${target.replace(':', ' ')}`);
    writeFileSync(file, '');
    return () => rmSync(file, { force: true });
  }

  /** Nothing hinders anybody any more; at least `count` pods run. */
  async heal(count: number): Promise<void> {
    for (const pod of this.pods) {
      pod.proxy.clearTraps();
      pod.proxy.delayMs = () => 0;
      pod.proxy.become('pass');
      if (pod.alive) pod.resume();
    }
    await Promise.all(this.alive.map((pod) => pod.ready()));
    const missing = count - this.alive.filter(({ doomed }) => !doomed).length;
    if (missing > 0) await this.boot(missing);
  }

  /** What somebody needs who looks into a broken invariant: ledgers, collections, and what the pods said. */
  keep(violations: readonly Violation[], evidence: object): void {
    this.kept = true;
    writeFileSync(join(this.folder, 'evidence.json'), JSON.stringify({ violations, faults: this.faults, ...evidence }));
    for (const pod of this.pods) writeFileSync(join(this.folder, `${pod.name}.log`), pod.output);
    process.stderr.write(`broken: the evidence is kept in ${this.folder}\n`);
  }

  async close(): Promise<void> {
    await Promise.all(this.pods.map((pod) => pod.dispose()));
    await this.connection.dropDatabase();
    await this.connection.close(true);
    await this.server?.close();
    if (!this.kept) rmSync(this.folder, { recursive: true, force: true });
  }
}
