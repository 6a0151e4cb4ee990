// What a test or the demo may do to a Kafka broker of its own.

export interface KafkaHandle {
  kind: 'Apache Kafka' | 'kcat mock';
  brokers: string;
  readonly pid: number;
  /** Ends the process; topics and records stay for `restart`. */
  stop(): Promise<void>;
  /** The same port, the same data. The mock broker forgets everything and cannot: it throws. */
  restart(): Promise<void>;
  /** No answer any more, connections stay open. */
  freeze(): void;
  thaw(): void;
  /** Ends the process and removes its data. */
  remove(): Promise<void>;
}
