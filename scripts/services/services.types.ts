// The words that the parts of the development services share. Types only: no behaviour may live here.

export type ServiceName = 'mongo' | 'kafka' | 'redis';

export type Log = (line: string) => void;

export interface ServiceAddresses {
  mongoUri?: string;
  kafkaBrokers?: string;
  redisUrl?: string;
}

/** A process that we started. `birth` tells it from a later process that was given the same pid. */
export interface ProcessRecord {
  pid: number;
  birth: string;
}

export interface ServiceRecord {
  provider: string;
  address: string;
  processes: ProcessRecord[];
  /** Processes that a new start takes over as they are, such as a database behind a gateway: only `down` ends them. */
  kept?: ProcessRecord[];
  stamp?: string;
}

/** `folder` keeps what outlives this run: records, logs, data. */
export interface Workplace {
  folder: string;
  log: Log;
}

export interface Provider {
  name: string;
  /** Changes with the provider's own source, so that a process started from older source is replaced. */
  stamp?(): string;
  /** Why it cannot even be tried here; answers within seconds. */
  unavailable(place: Workplace): Promise<string | undefined>;
  start(place: Workplace): Promise<{ address: string; pids: number[]; keptPids?: number[] }>;
}

export interface Service {
  name: ServiceName;
  title: string;
  variable: string;
  key: keyof ServiceAddresses;
  providers: Provider[];
}
