/**
 * Two Kafka brokers of which each partition can be told how to take its records: partition `p` is led by broker
 * `p % 2`. What a partition has accepted stands in `accepted`.
 */
import net from 'node:net';
import * as wire from '../faults/bench/kafka_wire.js';

/** An error code that is answered; `mute`: accepts, never answers; `reset`: accepts, then resets the connection. */
export type Mood = number | 'mute' | 'reset';

const MESSAGE_TOO_LARGE = 10;

export class PartitionBrokers {
  private readonly servers: net.Server[] = [];
  private readonly sockets = new Set<net.Socket>();
  /** Partition to its mood; the others are well. */
  readonly moods = new Map<number, Mood>();
  /** Partition to its records' values, in order. */
  readonly accepted = new Map<number, unknown[]>();
  /** A message that is too large for its broker, which refuses all that come with it. */
  refuses: (value: unknown) => boolean = () => false;
  /** Topic to the error that a question for its partitions is answered with. */
  readonly topicErrors = new Map<string, number>();
  /** How long a question for the partitions takes. */
  metadataMs = 0;
  /** Answers nothing at all. */
  silent = false;
  /** Partitions of each produce request. */
  requests: number[][] = [];

  /** Connections taken so far. */
  connections = 0;

  private constructor(public partitions: number) {}

  static async open(partitions: number): Promise<PartitionBrokers> {
    const cluster = new PartitionBrokers(partitions);
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

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy();
    await Promise.all(this.servers.map((server) => new Promise((resolve) => server.close(resolve))));
  }

  private get ports(): { id: number; port: number }[] {
    return this.servers.map((server, id) => ({ id, port: (server.address() as net.AddressInfo).port }));
  }

  private join(socket: net.Socket, broker: number): void {
    this.connections++;
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
    let rest: Buffer = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
        const size = rest.readInt32BE(0);
        this.answer(socket, broker, wire.readRequest(rest.subarray(4, 4 + size)));
        rest = rest.subarray(4 + size);
      }
    });
  }

  private answer(socket: net.Socket, broker: number, request: wire.Request): void {
    if (this.silent) return;
    if (request.api === wire.Api.apiVersions) socket.write(wire.apiVersionsAnswer(request));
    if (request.api === wire.Api.metadata) {
      const leaders = Array.from({ length: this.partitions }, (_, partition) => partition % 2);
      const facts = { brokers: this.ports, topics: wire.metadataTopics(request), leaders, errors: this.topicErrors };
      const answer = wire.metadataAnswer(request, facts);
      setTimeout(() => socket.write(answer), this.metadataMs);
    }
    if (request.api === wire.Api.produce) this.produce(socket, broker, request);
  }

  private produce(socket: net.Socket, broker: number, request: wire.Request): void {
    const produced = wire.producedOf(request);
    this.requests.push(produced.map(({ partition }) => partition));
    const moods = produced.map(({ partition, values }): Mood => {
      const records = values.map((value) => JSON.parse(value) as unknown);
      if (records.some(this.refuses)) return MESSAGE_TOO_LARGE;
      const leads = partition < this.partitions && partition % 2 === broker;
      const mood = leads ? (this.moods.get(partition) ?? wire.ErrorCode.none) : wire.ErrorCode.notLeader;
      if (typeof mood === 'number' && mood !== wire.ErrorCode.none) return mood;
      const known = this.accepted.get(partition) ?? [];
      this.accepted.set(partition, [...known, ...records]);
      return mood;
    });
    if (moods.includes('reset')) return void socket.resetAndDestroy();
    if (moods.includes('mute')) return;
    const answers = produced.map(({ topic, partition }, index) => ({
      topic,
      partition,
      error: moods[index] as number,
      offset: 0,
    }));
    socket.write(wire.produceAnswer(request, answers));
  }
}
