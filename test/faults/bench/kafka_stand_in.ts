/**
 * Two Kafka brokers, each behind a proxy of its own, that can be told to misbehave, and remember every record that they
 * accepted: a record stands in the ledger from the moment on at which a real broker would have it in its log, whatever
 * becomes of the answer. Clients know the proxies alone, so a broker can also be slow, silent or gone as a whole.
 */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import * as wire from './kafka_wire.js';
import { Ledger } from './ledger.js';
import { TcpProxy, type Network } from './tcp_proxy.js';

/**
 * How a broker takes records. `well`; `late`: accepts, answers too late; `mute`: accepts, never answers; `reset`: accepts,
 * then resets its connections; `deaf`: neither accepts nor answers; `hang_up`: accepts nothing and resets; `stale`: says
 * that it is not the leader.
 */
export type Mood = 'well' | 'late' | 'mute' | 'reset' | 'deaf' | 'hang_up' | 'stale';

/** By their ids. Each leads at least one partition of every topic, unless the other one has taken over. */
export const BROKERS = [0, 1] as const;
export type Broker = (typeof BROKERS)[number];

const PARTITIONS = 3;

interface SentPayload {
  n: string;
  version: number;
  key?: string;
}

export class KafkaStandIn {
  private readonly servers: net.Server[] = [];
  private readonly proxies: TcpProxy[] = [];
  private readonly networks: Network[] = [];
  private readonly sockets = new Set<net.Socket>();
  private readonly ledger: Ledger;
  private leaders = Array.from({ length: PARTITIONS }, (_, partition) => partition % 2);
  private inOffice: Broker | undefined;
  private accepted = 0;
  /** Asked for every produce request. */
  mood: () => Mood = () => 'well';
  lateMs = 0;
  private readonly counts = new Map<string, number>();

  private constructor(folder: string) {
    this.ledger = new Ledger(folder, 'kafka');
  }

  static async open(folder: string): Promise<KafkaStandIn> {
    const cluster = new KafkaStandIn(folder);
    for (const id of BROKERS) {
      const server = net.createServer((socket) => cluster.join(socket, id));
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      cluster.servers.push(server);
      cluster.proxies.push(await TcpProxy.open((server.address() as net.AddressInfo).port));
      cluster.networks.push('pass');
    }
    return cluster;
  }

  get brokers(): string[] {
    return this.ports.map(({ port }) => `127.0.0.1:${port}`);
  }

  /** Every partition gets the other broker as its leader; the old one refuses from now on. */
  moveLeaders(): void {
    this.leaders = this.leaders.map((leader) => 1 - leader);
  }

  /** It leads everything, as after an election among those who are left; until `heal`. */
  takeOver(broker: Broker): void {
    this.inOffice = broker;
  }

  /** `delayMs`: how much later everything arrives, each way, where the network is `delay`. */
  become(broker: Broker, network: Network, delayMs = 0): void {
    this.networks[broker] = network;
    this.proxies[broker]!.delayMs = delayMs;
    this.proxies[broker]!.become(network);
  }

  /** Ends its connections; who comes back finds the same network as before. */
  cut(broker: Broker): void {
    this.proxies[broker]!.become('reset');
    this.proxies[broker]!.become(this.networks[broker]!);
  }

  /** Both brokers are reached, and well, and lead what they led before. */
  heal(): void {
    this.mood = () => 'well';
    this.inOffice = undefined;
    for (const broker of BROKERS) this.become(broker, 'pass');
  }

  /** Produce requests with records of the topic that met the mood. */
  met(mood: Mood, topic: string): number {
    return this.counts.get(`${mood} ${topic}`) ?? 0;
  }

  /** Records of the topic that the broker accepted. */
  acceptedBy(broker: Broker, topic: string): number {
    return this.counts.get(`${broker} ${topic}`) ?? 0;
  }

  /** Connections to the broker so far, also into a hole; who is refused does not count. */
  connections(broker: Broker): number {
    return this.counts.get(`${broker}`) ?? 0;
  }

  async close(): Promise<void> {
    await Promise.all(this.proxies.map((proxy) => proxy.close()));
    for (const socket of this.sockets) socket.destroy();
    await Promise.all(this.servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  private get ports(): { id: number; port: number }[] {
    return this.proxies.map(({ port }, id) => ({ id, port }));
  }

  private leaderOf(partition: number): number {
    return this.inOffice ?? this.leaders[partition]!;
  }

  private count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  private join(socket: net.Socket, broker: Broker): void {
    this.count(`${broker}`);
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
    let rest: Buffer = Buffer.alloc(0);
    let line = Promise.resolve();
    socket.on('data', (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
        const size = rest.readInt32BE(0);
        const request = wire.readRequest(rest.subarray(4, 4 + size));
        rest = rest.subarray(4 + size);
        line = line.then(() => this.answer(socket, broker, request));
      }
    });
  }

  private async answer(socket: net.Socket, broker: Broker, request: wire.Request): Promise<void> {
    if (request.api === wire.Api.apiVersions) socket.write(wire.apiVersionsAnswer(request));
    if (request.api === wire.Api.metadata) {
      const leaders = this.leaders.map((_, partition) => this.leaderOf(partition));
      const facts = { brokers: this.ports, topics: wire.metadataTopics(request), leaders };
      socket.write(wire.metadataAnswer(request, facts));
    }
    if (request.api === wire.Api.produce) await this.produce(socket, broker, request);
  }

  private async produce(socket: net.Socket, broker: Broker, request: wire.Request): Promise<void> {
    const mood = this.mood();
    const produced = wire.producedOf(request);
    for (const topic of new Set(produced.map(({ topic }) => topic))) this.count(`${mood} ${topic}`);
    if (mood === 'deaf') return;
    if (mood === 'hang_up') return this.cut(broker);
    const answers = produced.map(({ topic, partition, values }) => {
      const leads = mood !== 'stale' && this.leaderOf(partition) === broker;
      if (leads) for (const value of values) this.accept(broker, topic, value);
      const error = leads ? wire.ErrorCode.none : wire.ErrorCode.notLeader;
      return { topic, partition, error, offset: this.accepted };
    });
    if (mood === 'mute') return;
    if (mood === 'reset') return this.cut(broker);
    if (mood === 'late') await sleep(this.lateMs);
    if (!socket.destroyed) socket.write(wire.produceAnswer(request, answers));
  }

  private accept(broker: Broker, topic: string, value: string): void {
    this.count(`${broker} ${topic}`);
    const { n, version, key } = JSON.parse(value) as SentPayload;
    const run = ++this.accepted;
    const [id, target] = [n, `kafka:${topic}`];
    this.ledger.write({ what: 'start', n, id, target, key, version, run, attempt: 1 });
    this.ledger.write({ what: 'end', n, run, result: 'ok' });
  }
}
