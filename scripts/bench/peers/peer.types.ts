// What every peer can do. Types only.
export interface PeerListener {
  /** A handler began, with the number its job was enqueued under. */
  onStart(i: number): void;
  /** A job is done and off the queue. */
  onDone(): void;
}

export interface Peer {
  readonly name: string;
  /** Opens an empty queue. */
  open(): Promise<void>;
  enqueue(i: number): Promise<void>;
  enqueueMany?(from: number, to: number): Promise<void>;
  start(listener: PeerListener): Promise<void>;
  stop(): Promise<void>;
  close?(): Promise<void>;
}
