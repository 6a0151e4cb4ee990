/**
 * The clean stop (invariant 11), seen from outside: a Nest application in a process of its own gets SIGTERM while its
 * handlers run, and the database tells what it left behind.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import mongoose, { type Connection } from 'mongoose';
import { randomUUID } from 'node:crypto';
import { startKafka } from '../../scripts/services/kafka/kafka.handle.js';
import { Host, type HostEnd, type HostSettings } from '../support/host/host.js';
import { TcpProxy } from '../support/tcp_proxy.js';
import { waitFor } from '../support/wait_for.js';

/** What an end may take beyond the grace, as documented. */
const MARGIN_MS = 4_000;
const LANES = ['fast:at_least_once', 'fast:at_most_once', 'long:at_least_once', 'long:at_most_once'];
const PARTITIONS = 8;

let connection: Connection;
const opened: { close(): Promise<unknown> }[] = [];

async function openProxy(target?: number): Promise<TcpProxy> {
  const proxy = await TcpProxy.open(target);
  opened.push(proxy);
  return proxy;
}

const mongoPort = (): number => Number(/:(\d+)/.exec(process.env['MONGO_URI']!.replace('mongodb:', ''))![1]);
/** Through a proxy: without the discovery of the replica set, which would go around it. */
const through = (proxy: TcpProxy): string => `mongodb://127.0.0.1:${proxy.port}/?directConnection=true`;

/** One host on a database of its own. */
class Scene {
  readonly db = `t_${randomUUID().slice(0, 12).replaceAll('-', '')}`;
  readonly host: Host;
  readonly graceMs: number;
  private readonly connection = connection.useDb(this.db, { useCache: true });

  constructor({ graceMs, options, ...settings }: Omit<HostSettings, 'db'> & { graceMs: number }) {
    this.graceMs = graceMs;
    const engine = { partitions: PARTITIONS, shutdown_grace_ms: graceMs, ...options };
    this.host = Host.start({ db: this.db, ...settings, options: engine });
    opened.push(this);
  }

  async post(target: string, dedupe_key: string = randomUUID(), more: object = {}): Promise<number> {
    return (await this.send(target, dedupe_key, more)).status;
  }

  async send(target: string, dedupe_key: string, more: object = {}): Promise<Response> {
    const answer = await fetch(`${await this.host.up()}/jobs`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ target, dedupe_key, ...more }),
    });
    await answer.text();
    return answer;
  }

  /** One row of each, all with their handlers running. */
  async run(targets: readonly string[] = LANES): Promise<void> {
    for (const target of targets) expect(await this.post(target)).toBe(201);
    await waitFor('every handler running', () => this.host.said('started').length === targets.length, 30_000);
  }

  /** Ends the host, and holds its end to what every end must look like, whatever ran. */
  async stop(...more: NodeJS.Signals[]): Promise<HostEnd> {
    const end = await this.host.stop(...more);
    const { code, signal } = end;
    const said = { unhandled: this.host.said('UNHANDLED'), sockets: this.host.said('sockets') };
    expect({ code, signal, ...said }).toEqual({ code: 0, signal: null, unhandled: [], sockets: ['0 '] });
    expect(end.ms).toBeLessThan(this.graceMs + MARGIN_MS);
    return end;
  }

  jobs() {
    return this.connection.collection('jobs').find().sort({ target: 1 }).toArray();
  }

  async partitionsOf(filter: object): Promise<number> {
    return this.connection.collection('job_partitions').countDocuments(filter);
  }

  /** Nobody has to wait for a lease of this host to run out. */
  async expectGivenBack(): Promise<void> {
    expect(await this.partitionsOf({ owner: null, lease_until: null, inflight: [] })).toBe(PARTITIONS);
    expect(await this.connection.collection('job_workers').countDocuments()).toBe(0);
  }

  async leaseOf(filter: object): Promise<Date> {
    const row = await this.connection.collection('job_partitions').findOne(filter);
    return row!['lease_until'] as Date;
  }

  async close(): Promise<void> {
    await this.host.kill();
    await this.connection.dropDatabase();
  }
}

const open = (settings: Omit<HostSettings, 'db'> & { graceMs: number }): Scene => new Scene(settings);

beforeAll(async () => {
  connection = await mongoose.createConnection(process.env['MONGO_URI']!).asPromise();
});
afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
});
afterAll(() => connection.close());

describe('SIGTERM', () => {
  it.each(['workers_last', 'workers_first'] as const)(
    'with handlers of 1 s on both lanes (%s): they finish, nothing new starts, all is written and given back',
    async (order) => {
      const scene = open({ order, handler: '1000', graceMs: 8_000 });
      await scene.run();
      // Rows behind what runs: two more places per target are free, the rest wait.
      for (let more = 0; more < 6; more++) for (const target of LANES) await scene.post(target, `${target}:${more}`);
      await scene.stop();
      const { host } = scene;
      expect(host.said('ended').sort()).toEqual(host.said('started').sort());
      expect(host.said('called_off')).toEqual([]);
      const late = host.lines().filter(({ what, at }) => what === 'started' && at !== undefined && at > 400);
      expect(late).toEqual([]);
      const left = await scene.jobs();
      expect(left).toHaveLength(7 * LANES.length - host.said('ended').length);
      expect(left.every((job) => job['status'] === 'PENDING' && job['attempts'] === 0 && !job['claim_token'])).toBe(
        true,
      );
      await scene.expectGivenBack();
    },
    60_000,
  );

  it('with a key whose rows run one after the other: the row that runs finishes, the next ones do not start', async () => {
    const scene = open({ handler: '700', graceMs: 8_000 });
    expect(await scene.post('fast:sequence', 'K', { rows: 4 })).toBe(201);
    await waitFor('the first row', () => scene.host.said('started').length > 0, 30_000);
    await scene.stop();
    expect(scene.host.said('ended')).toEqual(scene.host.said('started'));
    const late = scene.host.lines().filter(({ what, at }) => what === 'started' && at !== undefined && at > 400);
    expect(late).toEqual([]);
    expect(await scene.jobs()).toHaveLength(4 - scene.host.said('ended').length);
    await scene.expectGivenBack();
  }, 60_000);

  it('with handlers of 30 s: they finish within their grace, claims and leases renewed until the last one ended', async () => {
    const scene = open({
      handler: '30000',
      graceMs: 40_000,
      options: {
        fast_lane: { timeout_ms: 40_000 },
        lease: { ttl_ms: 60_000, heartbeat_ms: 1_000 },
        long_lane: { lease_ms: 3_000, renew_ms: 500, cancel_check_ms: 250 },
      },
    });
    await scene.run();
    const ending = scene.stop();
    await waitFor('the idle partitions given back', async () => (await scene.partitionsOf({ owner: null })) >= 6);
    const running = { owner: { $ne: null } };
    const early = await scene.leaseOf(running);
    const renewed = async (): Promise<boolean> => (await scene.leaseOf(running)).getTime() > early.getTime() + 15_000;
    await waitFor('leases renewed for 15 s of the stop', renewed, 25_000);
    const now = new Date();
    for (const job of await scene.jobs()) {
      if (job['lane'] === 'long') expect((job['lease_until'] as Date).getTime()).toBeGreaterThan(now.getTime() - 500);
    }
    await ending;
    expect(scene.host.said('ended').sort()).toEqual(LANES);
    expect(scene.host.said('called_off')).toEqual([]);
    expect(await scene.jobs()).toEqual([]);
    await scene.expectGivenBack();
  }, 120_000);

  it.each(['workers_last', 'workers_first'] as const)(
    'with endless handlers (%s): the end comes with the grace; what may run again is given back, the rest is judged later',
    async (order) => {
      const scene = open({ order, handler: 'endless', graceMs: 1_500 });
      await scene.run();
      await scene.stop();
      expect(scene.host.said('called_off').sort()).toEqual(LANES.map((target) => `${target} shutdown`));
      const [fastAgain, fastOnce, longAgain, longOnce] = await scene.jobs();
      for (const job of [fastAgain, fastOnce])
        expect(job).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
      // Still marked: whoever takes the partition over judges them.
      const marked = await scene.partitionsOf({ 'inflight.ids': { $in: [fastAgain!._id, fastOnce!._id] } });
      expect(marked).toBe(await scene.partitionsOf({ owner: { $ne: null } }));
      expect([1, 2]).toContain(marked);
      expect(longAgain).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
      expect(longAgain).not.toHaveProperty('claim_token');
      // Nobody knows how far it got: its lease runs out and it goes DEAD.
      expect(longOnce).toMatchObject({ status: 'RUNNING', claim_token: expect.any(String) });
    },
    60_000,
  );

  it('with handlers that obey their signal: at least once is due again at no charge, at most once is DEAD, all is given back', async () => {
    const scene = open({ handler: 'obedient', graceMs: 1_000 });
    await scene.run();
    await scene.stop();
    const [fastAgain, fastOnce, longAgain, longOnce] = await scene.jobs();
    for (const job of [fastAgain, longAgain]) expect(job).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
    for (const job of [fastOnce, longOnce]) expect(job).toMatchObject({ status: 'DEAD', attempts: 0 });
    await scene.expectGivenBack();
  }, 60_000);

  it('three times in a row, and SIGINT on top: as once', async () => {
    const scene = open({ handler: '1000', graceMs: 8_000 });
    await scene.run();
    await scene.stop('SIGTERM', 'SIGINT', 'SIGTERM');
    expect(scene.host.said('ended').sort()).toEqual(LANES);
    expect(await scene.jobs()).toEqual([]);
    await scene.expectGivenBack();
  }, 60_000);

  it('while requests still enqueue: each gets its answer, and every row that was answered for is there', async () => {
    const scene = open({ handler: '2000', graceMs: 8_000 });
    await scene.run();
    const accepted: string[] = [];
    const answers = new Set<number>();
    const kept = new Set<string | null>();
    let during = 0;
    let over = false;
    const client = async (): Promise<void> => {
      while (!over) {
        const dedupe_key = randomUUID();
        try {
          const stopping = scene.host.said('signal').length > 0;
          const { status, headers } = await scene.send('long:at_least_once', dedupe_key);
          answers.add(status);
          if (status === 201) accepted.push(dedupe_key);
          if (scene.host.said('signal').length > 0) during++;
          if (stopping) kept.add(headers.get('connection'));
        } catch {
          return; // nobody listens any more
        }
      }
    };
    const clients = [client(), client(), client()];
    await waitFor('requests', () => accepted.length > 5);
    const ended = scene.stop().finally(() => (over = true));
    await Promise.all([ended, ...clients]);
    expect([...answers]).toEqual([201]);
    expect(during).toBeGreaterThan(5);
    expect([...kept]).toEqual(['close']); // a connection that is always busy would hold up the end
    const left = new Set((await scene.jobs()).map((job) => job['dedupe_key'] as string));
    const lost = accepted.filter((key) => !left.has(key)).length;
    // What is not there any more has run: nothing else removes a row.
    expect(lost).toBe(scene.host.said('ended').length - LANES.length);
    await scene.expectGivenBack();
  }, 60_000);
});

describe('SIGTERM while the Kafka broker hangs', () => {
  it('in its first answer (a black hole): the end comes in time, the row waits', async () => {
    const hole = await openProxy();
    const scene = open({ graceMs: 1_500, env: { KAFKA: `127.0.0.1:${hole.port}` } });
    expect(await scene.post('kafka:nowhere')).toBe(201);
    await waitFor('a connection to the broker', () => hole.taken > 0, 30_000);
    await scene.stop();
    expect((await scene.jobs())[0]).toMatchObject({ status: 'PENDING', attempts: 0, crashes: 0 });
  }, 60_000);

  it('in the middle of a send: the end comes in time, and the row runs again', async () => {
    const kafka = await startKafka();
    opened.push({ close: () => kafka.remove() });
    const { Kafka, logLevel } = await import('kafkajs');
    const admin = new Kafka({ brokers: [kafka.brokers], logLevel: logLevel.NOTHING }).admin();
    await admin.connect();
    await admin.createTopics({ topics: [{ topic: 'orders' }], waitForLeaders: true });
    await admin.disconnect();
    const scene = open({ graceMs: 1_500, env: { KAFKA: kafka.brokers, TOPIC: 'orders' } });
    expect(await scene.post('kafka:orders')).toBe(201);
    await waitFor('a delivery', async () => (await scene.jobs()).length === 0, 30_000);
    kafka.freeze();
    expect(await scene.post('kafka:orders')).toBe(201);
    const [row] = await scene.jobs();
    await waitFor('a send', async () => (await scene.partitionsOf({ 'inflight.ids': row!['_id'] })) === 1);
    await scene.stop();
    kafka.thaw();
    expect((await scene.jobs())[0]).toMatchObject({ status: 'PENDING', attempts: 0 });
  }, 120_000);
});

describe('SIGTERM while the database', () => {
  it('is away (refused): the end comes in time, and the rows are left to the next owner', async () => {
    const proxy = await openProxy(mongoPort());
    const scene = open({ handler: '500', graceMs: 2_000, uri: through(proxy) });
    await scene.run();
    proxy.become('refuse');
    await waitFor('handlers that came back', () => scene.host.said('ended').length === LANES.length);
    await scene.stop();
    const jobs = await scene.jobs();
    expect(jobs.map((job) => job['status'])).toEqual(['PENDING', 'PENDING', 'RUNNING', 'RUNNING']);
  }, 60_000);

  it('is away (refused) while a schedule ticks: its tick, which waits for the database, holds up nothing', async () => {
    const proxy = await openProxy(mongoPort());
    const env = { SCHEDULE: '* * * * * *' };
    const scene = open({ handler: '1500', graceMs: 2_000, uri: through(proxy), env });
    await scene.run();
    proxy.become('refuse');
    // Longer than a tick's pause: one is under way by then.
    await waitFor('handlers that came back', () => scene.host.said('ended').length === LANES.length);
    await scene.stop();
  }, 60_000);

  it('falls silent (a black hole): the end comes in time all the same, though the driver would wait for it', async () => {
    const proxy = await openProxy(mongoPort());
    const scene = open({ handler: '500', graceMs: 2_000, uri: through(proxy) });
    await scene.run();
    proxy.become('hole');
    await waitFor('handlers that came back', () => scene.host.said('ended').length === LANES.length);
    const end = await scene.host.stop();
    expect({ code: end.code, unhandled: scene.host.said('UNHANDLED') }).toEqual({ code: 1, unhandled: [] });
    expect(end.ms).toBeLessThan(scene.graceMs + MARGIN_MS + 1_000);
  }, 60_000);

  it('is away and comes back within the grace: outcomes are written before the connections close', async () => {
    const proxy = await openProxy(mongoPort());
    const scene = open({
      handler: '500',
      graceMs: 10_000,
      uri: through(proxy),
      mongoose: { serverSelectionTimeoutMS: 300, heartbeatFrequencyMS: 500 },
    });
    await scene.run();
    proxy.become('refuse');
    await waitFor('handlers that came back', () => scene.host.said('ended').length === LANES.length);
    const ending = scene.stop();
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    proxy.become('pass');
    await ending;
    expect(await scene.jobs()).toEqual([]);
    await scene.expectGivenBack();
  }, 60_000);
});
