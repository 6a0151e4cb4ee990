/**
 * Two Kafka brokers that can be told to misbehave, and remember every record that they accepted: a record stands in the
 * ledger from the moment on at which a real broker would have it in its log, whatever becomes of the answer.
 */
import net from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import * as wire from './kafka_wire.js';
import { Ledger } from './ledger.js';

/**
 * `well`; `late`: accepts, answers too late; `mute`: accepts, never answers; `reset`: accepts, then resets the
 * connection; `deaf`: neither accepts nor answers; `hang_up`: accepts nothing and resets; `stale`: says that it is not
 * the leader.
 */
export type Mood = 'well' | 'late' | 'mute' | 'reset' | 'deaf' | 'hang_up' | 'stale';

const PARTITIONS = 3;

interface SentPayload {
  n: string;
  version: number;
  key?: string;
}

export class KafkaStandIn {
  private readonly servers: net.Server[] = [];
  private readonly sockets = new Set<net.Socket>();
  private readonly ledger: Ledger;
  private leaders = Array.from({ length: PARTITIONS }, (_, partition) => partition % 2);
  private accepted = 0;
  /** Asked for every produce request. */
  mood: () => Mood = () => 'well';
  lateMs = 0;
  /** How often it was in which mood. */
  readonly moods = new Map<Mood, number>();

  private constructor(folder: string) {
    this.ledger = new Ledger(folder, 'kafka');
  }

  static async open(folder: string): Promise<KafkaStandIn> {
    const cluster = new KafkaStandIn(folder);
    for (const id of [0, 1]) {
      const server = net.createServer((socket) => cluster.join(socket, id));
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      cluster.servers.push(server);
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

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await Promise.all(this.servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  private get ports(): { id: number; port: number }[] {
    return this.servers.map((server, id) => ({ id, port: (server.address() as net.AddressInfo).port }));
  }

  private join(socket: net.Socket, broker: number): void {
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

  private async answer(socket: net.Socket, broker: number, request: wire.Request): Promise<void> {
    if (request.api === wire.Api.apiVersions) socket.write(wire.apiVersionsAnswer(request));
    if (request.api === wire.Api.metadata) {
      const facts = { brokers: this.ports, topics: wire.metadataTopics(request), leaders: this.leaders };
      socket.write(wire.metadataAnswer(request, facts));
    }
    if (request.api === wire.Api.produce) await this.produce(socket, broker, request);
  }

  private async produce(socket: net.Socket, broker: number, request: wire.Request): Promise<void> {
    const mood = this.mood();
    this.moods.set(mood, (this.moods.get(mood) ?? 0) + 1);
    if (mood === 'deaf') return;
    if (mood === 'hang_up') return void socket.resetAndDestroy();
    const answers = wire.producedOf(request).map(({ topic, partition, values }) => {
      const leads = mood !== 'stale' && this.leaders[partition] === broker;
      if (leads) for (const value of values) this.accept(topic, value);
      const error = leads ? wire.ErrorCode.none : wire.ErrorCode.notLeader;
      return { topic, partition, error, offset: this.accepted };
    });
    if (mood === 'mute') return;
    if (mood === 'reset') return void socket.resetAndDestroy();
    if (mood === 'late') await sleep(this.lateMs);
    if (!socket.destroyed) socket.write(wire.produceAnswer(request, answers));
  }

  private accept(topic: string, value: string): void {
    const { n, version, key } = JSON.parse(value) as SentPayload;
    const run = ++this.accepted;
    const [id, target] = [n, `kafka:${topic}`];
    this.ledger.write({ what: 'start', n, id, target, key, version, run, attempt: 1 });
    this.ledger.write({ what: 'end', n, run, result: 'ok' });
  }
}
